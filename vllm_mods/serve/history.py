"""In which release a flag came or went, as far as the releases at hand tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vllm_mods.base import versions
from vllm_mods.serve.faults import ServeFault

UNKNOWN = "flag-unknown"


def told(
    faults: Iterable[ServeFault], version: str | None, known: Mapping[str, frozenset[str]]
) -> tuple[ServeFault, ...]:
    """Add to each unknown flag which releases have it; ``known`` has the flags by version."""
    return tuple(
        fault._replace(message=_joined(fault.message, when))
        if fault.code == UNKNOWN and (when := _when(_plain(fault.subject), version, known))
        else fault
        for fault in faults
    )


def _joined(message: str, when: str) -> str:
    return f"{message}{' ' if message.endswith('?') else '; '}{when}"


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


def unknown(faults: Iterable[ServeFault]) -> frozenset[str]:
    """Return the names of the flags that were not found."""
    return frozenset(_plain(fault.subject) for fault in faults if fault.code == UNKNOWN)


def _plain(typed: str) -> str:
    name = typed.partition(".")[0]
    return f"--{name[5:]}" if name.startswith("--no-") else name
