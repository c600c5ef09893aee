"""One serve command on many trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.tree import Tree
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault


class ServeCell(NamedTuple):
    """The answer for one tree: ``version`` is vLLM's, ``tree`` the spec it was opened by."""

    version: str
    tree: str
    answer: ServeAnswer


def cells(
    specs: Iterable[str], opener: Callable[[str], Tree], ask: Callable[[Tree], ServeAnswer]
) -> tuple[ServeCell, ...]:
    """Ask about each tree. One that cannot be read fails its own cell only. Pure but for the trees."""
    answered = []
    for spec in specs:
        version = spec.removeprefix("pypi:")
        try:
            tree = opener(spec)
            version = tree.version or version
            answer = ask(tree)
        except TreeError as error:
            fault = ServeFault(FindingCode.UNREADABLE, spec, error.message)
            answer = ServeAnswer((fault,), used=0)
        answered.append(ServeCell(version, spec, answer))
    return tuple(answered)
