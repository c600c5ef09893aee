"""Every error that a user can meet, with the exit code it stands for.

The core raises these and nothing else on purpose; it never prints and never
exits. Whatever else reaches the command line is a bug (exit code 70).
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_NO = 1
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_NOT_RESTORED = 4
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


class VllmModsError(Exception):
    """A failure that the user can act on.

    ``message`` says what, where and why; ``hint`` is the exact next thing to do.
    """

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(VllmModsError):
    """The call itself is wrong: an unknown mod, a target that is not vLLM."""


class ManifestError(VllmModsError):
    """A mod.toml (or another file of a library) is wrong; ``problems`` has every fault found.

    Each problem starts with its key path, e.g. ``variant[0].patches[1]: …``.
    """

    def __init__(self, where: str, problems: tuple[str, ...], *, hint: str | None = None) -> None:
        lines = "".join(f"\n  {problem}" for problem in problems)
        noun = "problem" if len(problems) == 1 else "problems"
        super().__init__(f"{where}: {len(problems)} {noun}{lines}", hint=hint)
        self.where = where
        self.problems = problems


class DiffError(VllmModsError):
    """A patch file is not a diff that can be applied exactly; ``line`` is 1-based in the patch."""

    def __init__(self, where: str, line: int, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"{where}:{line}: {why}", hint=hint)
        self.where = where
        self.line = line
        self.why = why


class TreeError(VllmModsError):
    """A tree cannot be read: no network, a corrupt archive, a file that escapes the root."""

    exit_code = EXIT_NO


class Unreachable(TreeError):
    """A tree cannot be had now: no connection, and the cache does not have it. Another time it may."""


class NotRendered(VllmModsError):
    """A chat template that cannot be read, or that makes no prompt of a conversation."""

    exit_code = EXIT_NO


class Refused(VllmModsError):
    """Nothing was changed, or everything was put back: the tree is as it was."""

    exit_code = EXIT_REFUSED


class NotRestored(VllmModsError):
    """The tree was changed and could not be put back as it was."""

    exit_code = EXIT_NOT_RESTORED
