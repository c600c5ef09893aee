"""Names in a file that are others by now, each at its place alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from vllm_mods.formats import syntax_tree


class Renaming(NamedTuple):
    """A name at the end of a line's column ``end`` (in bytes) that is another one by now."""

    line: int
    end: int
    old: str
    new: str


def is_utf8(data: bytes) -> bool:
    """Tell whether columns in bytes are those of the file: it is UTF-8, without a mark at its beginning."""
    try:
        return syntax_tree.decoded(data).encode() == data
    except (SyntaxError, UnicodeDecodeError):
        return False


def done(data: bytes, edits: Iterable[Renaming]) -> bytes:
    """Put the other names in; where the old one does not stand, nothing is changed."""
    lines = data.splitlines(keepends=True)
    for one in sorted(edits, reverse=True):
        row, old = lines[one.line - 1], one.old.encode()
        if row[one.end - len(old) : one.end] == old:
            lines[one.line - 1] = row[: one.end - len(old)] + one.new.encode() + row[one.end :]
    return b"".join(lines)
