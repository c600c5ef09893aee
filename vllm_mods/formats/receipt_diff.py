"""Where receipts differ: those of the nodes of a cluster, or of two images. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vllm_mods.formats.receipt import FILE, RECORD, Receipt


class Disagreement(NamedTuple):
    """One thing that is not the same everywhere.

    ``kind`` is ``vllm``, ``mod``, ``order``, ``file``, ``original`` (of a file, before any mod) or ``package``;
    ``name`` a mod, a path or a package, ``""`` where there is only one; ``values`` has one text per receipt,
    None where it does not have the thing.
    """

    kind: str
    name: str
    values: tuple[str | None, ...]


def disagreements(receipts: Sequence[Receipt | None]) -> tuple[Disagreement, ...]:
    """Return everything in which receipts differ; None stands for a tree without mods.

    The vLLM under a tree without mods is not known from a receipt, and is not compared then.
    """
    all_receipts = tuple(receipts)
    differing: list[Disagreement] = []
    if None not in all_receipts:
        differing.append(Disagreement("vllm", "", tuple(one.vllm for one in all_receipts if one)))
    differing += _each(
        all_receipts,
        "mod",
        lambda receipt: (
            (mod.name, f"{mod.version}, variant {mod.variant}, {mod.digest[:12]}")
            for mod in receipt.mods
        ),
    )
    orders = [[mod.name for mod in one.mods] if one else None for one in all_receipts]
    if len({None if order is None else frozenset(order) for order in orders}) == 1:
        # Mods that are not everywhere say it better.
        texts = tuple(None if order is None else ", ".join(order) for order in orders)
        differing.append(Disagreement("order", "", texts))
    for kind, side in (("file", "after"), ("original", "before")):
        differing += _each(
            all_receipts,
            kind,
            lambda receipt, side=side: (  # type: ignore[misc]
                (file.path, getattr(file, side) or "not there")
                for file in receipt.files
                if file.kind in {FILE, RECORD}
            ),
        )
    return tuple(one for one in differing if len(set(one.values)) > 1)


def _each(
    nodes: tuple[Receipt | None, ...],
    kind: str,
    rows: Callable[[Receipt], Iterable[tuple[str, str]]],
) -> list[Disagreement]:
    tables = [dict(rows(one)) if one else {} for one in nodes]
    names = dict.fromkeys(name for table in tables for name in table)
    return [Disagreement(kind, name, tuple(table.get(name) for table in tables)) for name in names]
