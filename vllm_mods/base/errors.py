"""Every error that a user can meet, with the exit code it stands for.

The core raises these and nothing else on purpose; it never prints and never
exits. Whatever else reaches the command line is a bug (exit code 70).
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from vllm_mods.base.model import Plan

EXIT_OK = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_NOT_RESTORED = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_MEANINGS = {
    EXIT_OK: "done",
    EXIT_NO: "the answer is no",
    EXIT_USAGE: "wrong usage or a bad manifest",
    EXIT_REFUSED: "refused or rolled back: the tree is unchanged",
    EXIT_NOT_RESTORED: "the tree was changed and could not be restored",
    EXIT_BUG: "a bug",
    EXIT_INTERRUPTED: "interrupted",
}


def listed(problems: Sequence[str]) -> str:
    """Return how many problems there are, and each on a line of its own."""
    noun = "problem" if len(problems) == 1 else "problems"
    return "\n  ".join((f"{len(problems)} {noun}", *problems))


def no_network(host: str | None, why: str) -> str:
    """Say that a host cannot be reached, in the one sentence that every command has for it."""
    return f"no network connection to {host}: {why}"


class VllmModsError(Exception):
    """The kind of every error of this library: a failure that the caller can act on.

    ``message`` says what, where and why; ``hint`` is the exact next thing to do, None where there
    is none. ``code`` names the kind of error, ``exit_code`` is what the command line ends with.

    >>> try:
    ...     vm.open_tree("no-such-folder")
    ... except vm.VllmModsError as error:
    ...     print(error.code, error.exit_code, error.message, error.hint, sep="; ")
    usage; 2; no-such-folder: no such file or folder; name the folder with vllm/, or a virtual environment; a release is pypi:VERSION
    """

    code = "error"
    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(VllmModsError):
    """The call itself is wrong: an unknown mod, a target that is not vLLM.

    >>> vm.Library("library").mods("slow")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: there is no mod named `slow` in ...
    """

    code = "usage"


class ManifestError(VllmModsError):
    """A mod.toml (or another file of a library) is wrong; ``problems`` has every fault found.

    ``where`` is the file. Each problem starts with its key path, e.g. ``variant[0].patches[1]: …``.

    >>> try:
    ...     vm.Library("library").mods("broken")
    ... except vm.ManifestError as error:
    ...     print(error.problems[0])
    version: is required
    """

    code = "manifest"

    def __init__(self, where: str, problems: tuple[str, ...], *, hint: str | None = None) -> None:
        super().__init__(f"{where}: {listed(problems)}", hint=hint)
        self.where = where
        self.problems = problems


class DiffError(VllmModsError):
    """A patch file is not a diff that can be applied exactly.

    ``where`` is the file, ``line`` (1-based) the place in it, ``why`` what is wrong there.

    >>> try:
    ...     vm.plan(vm.Library("library").mods("torn"), vm.open_tree("site-packages"))
    ... except vm.DiffError as error:
    ...     print(error.line)
    3
    """

    code = "diff"

    def __init__(self, where: str, line: int, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"{where}:{line}: {why}", hint=hint)
        self.where = where
        self.line = line
        self.why = why


class TreeError(VllmModsError):
    """A tree cannot be read: no network, a corrupt archive, a file outside the root.

    >>> vm.open_tree("site-packages").read("../elsewhere")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.TreeError: site-packages: ...
    """

    code = "tree"
    exit_code = EXIT_NO


class Unreachable(TreeError):
    """A tree cannot be read now: the network is not available, and the cache does not have the tree.

    >>> vm.open_tree("pypi:0.1.0", offline=True, cache_dir="empty")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.Unreachable: ...
    """

    code = "unreachable"


class NotRendered(VllmModsError):
    """A chat template cannot be read, or makes no prompt from a conversation."""

    code = "not-rendered"
    exit_code = EXIT_NO


class Refused(VllmModsError):
    """Nothing was changed, or everything was restored: the tree is unchanged.

    ``plan`` says why, where a plan does: its verdicts, and the findings of each.

    >>> try:
    ...     vm.apply(vm.Library("library").mods("stale"), "site-packages")
    ... except vm.Refused as error:
    ...     print([one.verdict.value for one in error.plan.mods])
    ['conflict']
    """

    code = "refused"
    exit_code = EXIT_REFUSED

    def __init__(self, message: str, *, hint: str | None = None, plan: Plan | None = None) -> None:
        super().__init__(message, hint=hint)
        self.plan = plan


class NotRestored(VllmModsError):
    """The tree was changed and could not be restored. The next ``apply`` or ``revert`` tries again."""

    code = "not-restored"
    exit_code = EXIT_NOT_RESTORED


@contextmanager
def system_errors(
    kind: Callable[..., VllmModsError], what: str, *, hint: str | None = None
) -> Iterator[None]:
    """Make an error of a kind of one of the system, whose words come behind ``what``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}", hint=hint) from error


@contextmanager
def refusing_to_write(place: str) -> Iterator[None]:
    """Make a refusal, with nothing changed, of a place that cannot be written."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        why = f"{place} cannot be written: {error.strerror}; nothing was changed"
        hint = f"{'df -h' if is_full else 'ls -la'} {os.path.dirname(place) or '.'}"
        raise Refused(why, hint=hint) from error


@contextmanager
def reading(place: str, what: str = "", *, hint: str | None = None) -> Iterator[None]:
    """Make a ``TreeError`` of a place that cannot be read, as ``what`` calls it."""
    hint = hint or f"namei -l {place}  # shows who may read it"
    with system_errors(TreeError, what or place, hint=hint):
        yield


@contextmanager
def refusing() -> Iterator[None]:
    """Make a refusal, with nothing changed, of a tree that cannot be read."""
    try:
        yield
    except TreeError as error:
        raise Refused(f"nothing was changed: {error.message}", hint=error.hint) from error
