"""A serve command held against the vLLM that it will run on."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import re
from typing import NamedTuple

from vllm_mods.api import serve_command
from vllm_mods.api.access import Access, releases_in
from vllm_mods.api.serve_command import ServeArguments
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.library.catalog import Library
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault

_CALL = "vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE"


class ServeCell(NamedTuple):
    """The answer for one tree: ``version`` is vLLM's, ``tree`` the spec it was opened by."""

    version: str
    tree: str
    answer: ServeAnswer


class ServeChecked(NamedTuple):
    """The answers for a serve command, one of the ``cells`` per tree.

    ``argv`` is the command behind ``vllm serve``, ``pairing`` the one that it is of. ``over_releases``
    says that a range of releases was asked for.
    """

    argv: tuple[str, ...]
    pairing: str | None
    cells: tuple[ServeCell, ...]
    over_releases: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong on any tree."""
        return all(cell.answer.ok for cell in self.cells)


def serve_check(
    library: Library | None = None,
    pairing: str | None = None,
    *,
    command: str | None = None,
    target: str | None = None,
    vllm: str | None = None,
    access: Access | None = None,
) -> ServeChecked:
    """Hold the command of a pairing, or a ``command`` line, against a vLLM's source, which is not imported.

    ``pairing`` is the name of one of the ``library``, with its environment, templates and mods. ``target`` is
    what ``open_tree`` takes, ``vllm`` a range of releases; without both, the newest release that the pairing is for
    is asked.

    Returns ``ServeChecked``. Raises ``UsageError`` for a command that bash does not read, and where nothing says
    which vLLM is meant, or both do.

    >>> vm.serve_check(command="vllm serve m 'unended", target="site-packages")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: --command is not one that bash reads: ...
    """
    access = access or Access()
    if command is not None and pairing is None:
        asked = serve_command.of_script(command, "--command", _CALL)
    elif command is None and pairing is not None:
        library = library or Library()
        asked = serve_command.of_pairing(library, library.pairing(pairing))
    else:
        raise UsageError("name a pairing or give --command, one of them", hint=_CALL)
    if vllm is not None and target is not None:
        raise UsageError("--vllm and --target both say which vLLM is meant", hint="give one")
    if vllm is not None:
        specs = releases_in(access, vllm)
        cells = tuple(_ask_release(asked, spec, access) for spec in specs)
        return ServeChecked(asked.argv, asked.name, cells, over_releases=True)
    cell = _ask(asked, target or _default_target(asked, access), access)
    return ServeChecked(asked.argv, asked.name, (cell,), over_releases=False)


def _ask(asked: ServeArguments, spec: str, access: Access) -> ServeCell:
    tree = access.open(spec)
    return ServeCell(tree.version or "", tree.spec, serve_command.ask(asked, tree))


def _ask_release(asked: ServeArguments, spec: str, access: Access) -> ServeCell:
    """Hold the command against one of several releases; one that cannot be read fails its own cell only."""
    try:
        return _ask(asked, spec, access)
    except TreeError as error:
        fault = ServeFault(FindingCode.UNREADABLE, spec, error.message)
        return ServeCell(spec.removeprefix("pypi:"), spec, ServeAnswer((fault,), used=0))


def _default_target(asked: ServeArguments, access: Access) -> str:
    """Return the newest release that the pairing is for."""
    if asked.vllm is None:
        what = f"pairing `{asked.name}` does not say its vLLM" if asked.name else "no tree is named"
        raise UsageError(f"{what}: which one is it to be held against?", hint="--target TREE")
    if re.fullmatch(r"\d[\w.+]*", asked.vllm):
        return f"pypi:{asked.vllm}"
    return releases_in(access, asked.vllm, plain=True)[-1]
