"""The one printer of tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable


def columns(rows: Iterable[tuple[str, ...]], indent: str = "") -> list[str]:
    """Return a line for each row: all columns but the last, which may be painted, as wide as their longest text."""
    every = list(rows)
    widths = [max(map(len, column)) for column in zip(*every, strict=True)][:-1]
    lines = []
    for row in every:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        lines.append((indent + "  ".join((*padded, row[-1]))).rstrip())
    return lines
