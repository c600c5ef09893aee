"""What has changed since an earlier matrix, of which the JSON answer was kept."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mods.base.errors import UsageError
from vllm_mods.base.untrusted import json_of
from vllm_mods.grid.cell import Cell, CellChange


def changes(data: bytes, where: str, cells: Sequence[Cell]) -> tuple[CellChange, ...]:
    """Return the cells with another word than in an earlier answer, put together tree by tree.

    ``data`` is what ``matrix --json`` printed. Raises ``UsageError`` for anything else.
    """
    try:
        earlier = {
            (one["mod"], one["tree"]): one["verdict"] if one["computed"] else "unknown"
            for one in json_of(data)["cells"]
        }
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{where} is not what a matrix said as JSON",
            hint=f"vllm-mods matrix --format json --output {where}",
        ) from error
    found: dict[tuple[str, str | None, str], list[str]] = {}
    for cell in cells:
        before = earlier.get((cell.mod, cell.tree))
        if before != cell.word:
            found.setdefault((cell.tree, before, cell.word), []).append(cell.mod)
    return tuple(CellChange(*key, tuple(mods)) for key, mods in found.items())
