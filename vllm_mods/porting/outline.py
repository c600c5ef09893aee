"""A Python file as a tree of classes and functions, each with the lines that are its own. Pure.

In the lines of whatever holds them, definitions stand as one line each, their mark: so the order of
definitions is merged like that of lines, and what is in a definition is merged with its namesake's.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.diff3 import Lines
from vllm_mods.formats import syntax_tree
from vllm_mods.placing.chains import LONE_RETURN, CodeBlock, read_blocks

_MARK = b"\1"  # not a zero: git takes a text with one for binary


class Outline(NamedTuple):
    """A definition, or with an empty ``key`` the module.

    ``lines`` are its own and the marks of ``inner``; ``key`` tells it from the others in the same place: its
    name, and where that occurs several times, how it is decorated and its number among those that are alike.
    ``start`` and ``end`` are its lines in the file, 1-based.
    """

    key: str
    lines: Lines
    inner: tuple["Outline", ...]
    start: int
    end: int

    @property
    def name(self) -> str:
        """The name alone."""
        return self.key.split(" ")[0]

    def text(self) -> bytes:
        """Return the lines with every definition in its place."""
        return b"".join(self.flat())

    @property
    def marked(self) -> "dict[bytes, Outline]":
        """What is in it, by mark."""
        return {mark(one.key): one for one in self.inner}

    def flat(self) -> Iterator[bytes]:
        """Yield the lines with every definition in its place."""
        inner = self.marked
        for line in self.lines:
            yield from inner[line].flat() if is_mark(line) else (line,)


def read(data: bytes) -> Outline | None:
    """Read a file; None for what is no Python, or not of a version that this Python reads."""
    if syntax_tree.module(data) is None or _MARK in data:
        return None
    if b"\x0c" in data or LONE_RETURN.search(data):
        return None  # ``ast`` ends a line there, and patches do not
    text = line_diff.split(data)
    return _outline("", [block for block in read_blocks(data) if block.defines], text, 1, len(text))


def mark(key: str) -> bytes:
    """Return the line that stands for a definition."""
    return _MARK + key.encode() + b"\n"


def is_mark(line: bytes) -> bool:
    """Tell whether a line stands for a definition."""
    return line.startswith(_MARK)


def within(scope: str, name: str) -> str:
    """Return the dotted chain of what is called so in a scope."""
    return f"{scope}.{name}" if scope else name


def _outline(
    key: str, blocks: Sequence[CodeBlock], text: Sequence[bytes], start: int, end: int
) -> Outline:
    """Make the outline of some lines, of which ``blocks`` are the definitions, outer ones first."""
    own: list[bytes] = []
    inner: list[Outline] = []
    outer: list[CodeBlock] = []
    for block in blocks:
        if not outer or block.start > outer[-1].end:
            outer.append(block)
    at = start
    for block, name in zip(outer, _keys(outer, text), strict=True):
        own += [*text[at - 1 : block.start - 1], mark(name)]
        below = [one for one in blocks if block.start < one.start <= block.end]
        inner.append(_outline(name, below, text, block.start, block.end))
        at = block.end + 1
    own += text[at - 1 : end]
    return Outline(key, tuple(own), tuple(inner), start, end)


def _keys(blocks: Sequence[CodeBlock], text: Sequence[bytes]) -> Iterator[str]:
    names = Counter(one.name for one in blocks)
    counts: Counter[str] = Counter()
    for one in blocks:
        if names[one.name] == 1:
            yield one.name
            continue
        decorators = b" ".join(b"".join(text[one.start - 1 : one.head - 1]).split())
        alike = f"{one.name} {decorators.decode(errors='replace')}".rstrip()
        counts[alike] += 1
        yield f"{alike} #{counts[alike]}"
