"""A file that hunks are placed in: its bytes, its lines, its scopes, and where a text stands in it. Pure."""

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter

from vllm_mods.base import limits, line_diff
from vllm_mods.formats.diff import Hunk
from vllm_mods.formats.syntax_tree import Scope
from vllm_mods.placing.chains import CodeBlock, read_blocks
from vllm_mods.placing.scopes import Scopes, long_strings

COLUMN_0 = rb"[A-Za-z_$]"
_SHORTEST_BLOB = 7


class Target:
    """A file to look in. Its scopes are read at the first question that needs them.

    ``parse`` is None for a file that has no scopes (a template, JSON). It may raise ``UnparsableError``.
    """

    def __init__(self, data: bytes, parse: Callable[[bytes], Scopes] | None) -> None:
        self.data = data
        self.parse = parse

    @cached_property
    def scopes(self) -> Scopes | None:
        """The file's scopes; None where it has none."""
        return None if self.parse is None else self.parse(self.data)

    def around(self, line: int) -> tuple[CodeBlock, ...]:
        """Return the blocks that a line of Python belongs to, the outermost first; their heads belong to them."""
        blocks = read_blocks(self.data) if self.parse else ()
        return tuple(block for block in blocks if block.start <= line <= block.end)

    @cached_property
    def stripped(self) -> tuple[bytes, ...]:
        """The file's lines without the blanks around them."""
        return tuple(text.strip() for text in self.lines)

    @cached_property
    def places(self) -> dict[bytes, list[int]]:
        """The 1-based lines on which each text stands, blanks around it left out."""
        places: dict[bytes, list[int]] = {}
        for number, text in enumerate(self.stripped, 1):
            places.setdefault(text, []).append(number)
        return places

    def open_blocks(self, above: int, indent: int) -> tuple[CodeBlock, ...]:
        """Return the blocks that a line with this indent belongs to if it follows the line ``above``, or code above that."""
        while above > 0 and (not self.stripped[above - 1] or self.stripped[above - 1][:1] == b"#"):
            above -= 1
        return tuple(block for block in self.around(above) if block.indent < indent)

    @cached_property
    def heads(self) -> dict[int, Scope]:
        """The classes and functions by the line of their ``class`` or ``def``."""
        known = self.scopes
        return {one.head: one for one in known.definitions} if known else {}

    def in_string(self, first: int, last: int) -> bool:
        """Tell whether some lines are all inside of one string, its first and last line left out."""
        if self.parse is None:
            return False
        return any(start < first and last < end for start, end in long_strings(self.data))

    def home(self, line: int) -> str:
        """Return the chain of classes and functions around a line; ``""`` where there are none."""
        chain = self.scopes.at(line) if self.scopes else ""
        return "" if " " in chain else chain  # a statement of the module: ``import os``, ``x =``

    @cached_property
    def tops(self) -> list[int]:
        """The numbers of the lines that begin in column 0 as git's do, in order."""
        return [n for n, text in enumerate(self.lines, 1) if re.match(COLUMN_0, text)]

    @cached_property
    def lines(self) -> tuple[bytes, ...]:
        """The file's lines with their terminators; only a line feed ends a line."""
        return line_diff.split(self.data)

    def is_blob(self, name: str | None) -> bool:
        """Tell whether git calls this content so.

        ``name`` may be abbreviated as git does it; None, and what is too short to tell, is no name.
        """
        if name is None or len(name) < _SHORTEST_BLOB:
            return False
        return blob_id(self.data, "sha256" if len(name) == 64 else "sha1").startswith(name)


def blob_id(data: bytes, algorithm: str = "sha1") -> str:
    """Return git's name of a content (gitformat-object: ``blob SIZE NUL`` and the bytes)."""
    whole = b"blob %d\0" % len(data) + data
    return hashlib.new(algorithm, whole, usedforsecurity=False).hexdigest()


def splice(lines: Sequence[bytes], placed: Sequence[tuple[int, Hunk]]) -> bytes | None:
    """Put hunks into the lines of a file at their 1-based lines; None if two of them want the same lines."""
    out: list[bytes] = []
    at = 0
    for line, hunk in sorted(placed, key=itemgetter(0)):
        if line - 1 < at:
            return None
        out += (*lines[at : line - 1], *hunk.new)
        at = line - 1 + len(hunk.old)
    return b"".join((*out, *lines[at:]))


def matches(data: bytes, needle: Sequence[bytes]) -> tuple[int, ...]:
    """Return the 1-based lines at which the lines of ``needle`` stand, overlaps included.

    All of them, or the first ones and more than ``limits.PLACES``.
    """
    text = b"".join(needle)
    if not text:
        return ()
    lines = []
    line = 1
    counted = 0
    at = data.find(text)
    while at != -1:
        starts = at == 0 or data[at - 1 : at] == b"\n"
        ends = text.endswith(b"\n") or at + len(text) == len(data)
        if starts and ends:
            line += data.count(b"\n", counted, at)
            counted = at
            lines.append(line)
            if len(lines) > limits.PLACES:
                break
        at = data.find(text, at + 1)
    return tuple(lines)


def shown(line: bytes) -> str:
    """Return a line for a person, without its end."""
    return line.rstrip(b"\r\n").decode("utf-8", "replace")
