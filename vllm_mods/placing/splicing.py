"""Placed hunks put into a file. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mods.formats.diff import Hunk


def splice(lines: Sequence[bytes], placed: Sequence[tuple[int, Hunk]]) -> bytes | None:
    """Put hunks in at their 1-based lines; None if two of them want the same lines."""
    out: list[bytes] = []
    at = 0
    for line, hunk in sorted(placed, key=lambda pair: pair[0]):
        start = line - 1
        if start < at:
            return None
        out += lines[at:start]
        out += hunk.new
        at = start + len(hunk.old)
    out += lines[at:]
    return b"".join(out)
