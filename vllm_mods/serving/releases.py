"""One serve command on many trees, and in which release a flag came or went, as far as they tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.tree import Tree
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault

_UNKNOWN = "flag-unknown"


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
            answer = ServeAnswer((fault,), frozenset(), 0)
        answered.append(ServeCell(version, spec, answer))
    known = {cell.version: cell.answer.names for cell in answered if cell.answer.names}
    return tuple(
        cell._replace(answer=date_flags(cell.answer, cell.version, known)) for cell in answered
    )


def date_flags(
    answer: ServeAnswer, version: str | None, known: Mapping[str, frozenset[str]]
) -> ServeAnswer:
    """Add to each unknown flag which releases have it; ``known`` has the flags by version."""

    def dated(fault: ServeFault) -> ServeFault:
        when = _when(_plain(fault), version, known) if fault.code == _UNKNOWN else ""
        between = " " if fault.message.endswith("?") else "; "
        return fault._replace(message=f"{fault.message}{between}{when}") if when else fault

    return answer._replace(faults=tuple(map(dated, answer.faults)))


def unknown(faults: Iterable[ServeFault]) -> frozenset[str]:
    """Return the names of the flags that were not found."""
    return frozenset(_plain(fault) for fault in faults if fault.code == _UNKNOWN)


def _when(name: str, version: str | None, known: Mapping[str, frozenset[str]]) -> str:
    ordered = sorted(known, key=versions.sort_key)
    having = [one for one in ordered if name in known[one]]
    if not having:
        return ""
    first, last = having[0], having[-1]
    if version is not None and versions.sort_key(version) < versions.sort_key(first):
        before = ordered[ordered.index(first) - 1] if first != ordered[0] else None
        return f"{name} came with {first}" + (f" ({before} has it not)" if before else "")
    if version is not None and versions.sort_key(version) > versions.sort_key(last):
        return f"{name} went after {last}"
    return f"releases {first} to {last} have {name}"


def _plain(fault: ServeFault) -> str:
    name = fault.subject.partition(".")[0]
    return f"--{name[5:]}" if name.startswith("--no-") else name
