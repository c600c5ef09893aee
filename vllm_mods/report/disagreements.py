"""In what receipts differ, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm_mods.formats.receipt_diff import Disagreement
from vllm_mods.report.columns import columns

_DISAGREEMENTS = {
    "vllm": "vLLM",
    "mod": "mod",
    "order": "the order of the mods",
    "file": "",
    "original": "before any mod,",
    "package": "package",
}


def disagreements(differences: Iterable[Disagreement], names: Sequence[str]) -> list[str]:
    """Return, per thing in which receipts differ, a line and what each of them has."""
    lines = []
    for difference in differences:
        lines.append(f"{_DISAGREEMENTS[difference.kind]} {difference.name}".strip() + ":")
        values = (value or "not there" for value in difference.values)
        lines += columns(zip(names, values, strict=True), "  ")
    return lines
