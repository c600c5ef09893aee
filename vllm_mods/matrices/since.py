"""What has changed since an earlier matrix, of which the JSON answer was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Verdict
from vllm_mods.base.untrusted import json_of
from vllm_mods.matrices.cell import Cell, CellChange

_SCHEMA = 1


def earlier(data: bytes, path: str) -> Mapping[tuple[str, str], str]:
    """Return the words of an earlier answer, by mod and tree.

    ``data`` is what ``matrix --json`` printed. Raises ``UsageError`` for anything else.
    """
    try:
        raw = json_of(data)
        if raw["schema"] != _SCHEMA:
            raise ValueError(raw["schema"])  # noqa: TRY301
        return {
            (str(one["mod"]), str(one["tree"])): Verdict(one["verdict"]).value
            if one["computed"]
            else "unknown"
            for one in raw["cells"]
        }
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"--since {path} is not what a matrix said as JSON, of schema {_SCHEMA}",
            hint=f"vllm-mods matrix --format json --output {path}",
        ) from error


def changes(
    earlier: Mapping[tuple[str, str], str], cells: Sequence[Cell]
) -> tuple[CellChange, ...]:
    """Return the cells with another word than in an earlier answer, put together tree by tree."""
    groups: dict[tuple[str, str | None, str], list[str]] = {}
    for cell in cells:
        before = earlier.get((cell.mod, cell.tree))
        if before != cell.word:
            groups.setdefault((cell.tree, before, cell.word), []).append(cell.mod)
    return tuple(CellChange(*key, tuple(mods)) for key, mods in groups.items())
