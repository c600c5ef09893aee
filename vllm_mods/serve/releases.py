"""One serve command on many trees: a cell per tree. Pure but for the trees it opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Tree
from vllm_mods.serve import history
from vllm_mods.serve.check import ServeAnswer
from vllm_mods.serve.faults import ServeFault


class ServeCell(NamedTuple):
    """The answer for one tree: ``version`` is vLLM's, ``tree`` the spec it was opened by."""

    version: str
    tree: str
    answer: ServeAnswer


def cells(
    specs: Iterable[str], opener: Callable[[str], Tree], ask: Callable[[Tree], ServeAnswer]
) -> tuple[ServeCell, ...]:
    """Ask about each tree. One that cannot be read fails its own cell only."""
    found = []
    for spec in specs:
        version = spec.removeprefix("pypi:")
        try:
            tree = opener(spec)
            version = tree.version or version
            answer = ask(tree)
        except TreeError as error:
            fault = ServeFault("unreadable", spec, error.message)
            answer = ServeAnswer((fault,), frozenset(), 0)
        found.append(ServeCell(version, spec, answer))
    known = {cell.version: cell.answer.names for cell in found if cell.answer.names}
    return tuple(
        cell._replace(
            answer=cell.answer._replace(
                faults=history.told(cell.answer.faults, cell.version, known)
            )
        )
        for cell in found
    )
