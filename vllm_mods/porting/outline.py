"""A Python file as a tree of classes and functions, each with the lines that are its own. Pure.

In the lines of whatever holds them, definitions stand as one line each, their mark: so the order of
definitions is merged like that of lines, and what is in a definition is merged with its namesake's.
``ast`` reads it: LibCST takes nine times as long, and only lines are needed.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.diff3 import Lines
from vllm_mods.formats import syntax_tree

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_MARK = b"\1"  # not a zero: git takes a text with one for binary


class Outline(NamedTuple):
    """A definition, or with an empty ``key`` the module.

    ``lines`` are its own and the marks of ``inner``; ``key`` tells it from the others in
    the same place: its name, and where that occurs several times, how it is decorated and its
    number among those that are alike.
    ``start`` and ``end`` are its lines in the file, 1-based.
    """

    key: str
    lines: Lines
    inner: tuple[Outline, ...]
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
    def marked(self) -> dict[bytes, Outline]:
        """What is in it, by mark."""
        return {mark(one.key): one for one in self.inner}

    def flat(self) -> Iterator[bytes]:
        """Yield the lines with every definition in its place."""
        inner = self.marked
        for line in self.lines:
            yield from inner[line].flat() if is_mark(line) else (line,)


def read(data: bytes) -> Outline | None:
    """Read a file; None for what is no Python, or not of a version that this Python reads."""
    module = syntax_tree.module(data)
    if module is None:
        return None
    text = line_diff.split(data)
    if _MARK in data or b"\x0c" in data or b"\r" in data.replace(b"\r\n", b""):
        return None  # ``ast`` ends a line there, and patches do not
    return _outline("", module, text, 1, len(text))


def mark(key: str) -> bytes:
    """Return the line that stands for a definition."""
    return _MARK + key.encode() + b"\n"


def is_mark(line: bytes) -> bool:
    """Tell whether a line stands for a definition."""
    return line.startswith(_MARK)


def within(scope: str, name: str) -> str:
    """Return the dotted chain of what is called so in a scope."""
    return f"{scope}.{name}" if scope else name


def _outline(key: str, node: ast.AST, text: Sequence[bytes], start: int, end: int) -> Outline:
    own: list[bytes] = []
    inner: list[Outline] = []
    at = start
    nodes = list(_definitions(node))
    for child, name in zip(nodes, _keys(nodes), strict=True):
        first = syntax_tree.first_line(child)
        last = child.end_lineno or first
        if first < at:
            continue  # on one line with what is before it
        own += [*text[at - 1 : first - 1], mark(name)]
        inner.append(_outline(name, child, text, first, last))
        at = last + 1
    own += text[at - 1 : end]
    return Outline(key, tuple(own), tuple(inner), start, end)


def _keys(nodes: Sequence[Definition]) -> Iterator[str]:
    names = Counter(one.name for one in nodes)
    counts: Counter[str] = Counter()
    for node in nodes:
        if names[node.name] == 1:
            yield node.name
            continue
        alike = " ".join((node.name, *(ast.unparse(part) for part in node.decorator_list)))
        counts[alike] += 1
        yield f"{alike} #{counts[alike]}"


def _definitions(node: ast.AST) -> Iterator[Definition]:
    """Yield the definitions directly in a node, those under ``if`` and ``try`` included, in order."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(child)
