"""Elements that two sides add to the brackets of one statement. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

Side = tuple[bytes, ast.stmt, int]
"""A statement's text, its node, and the line of the file that the text begins with, 1-based."""


class BothChangedError(Exception):
    """Both sides changed one thing, each in its own way."""


class _Bracket(NamedTuple):
    """The elements of a bracket, in ``gaps`` those between and around the ones that the base has.

    So ``gaps`` is one longer than ``kept``, the others.
    """

    kept: list[ast.AST]
    gaps: list[list[ast.AST]]


def merge(base: Side, ours: Side, theirs: Side) -> bytes:
    """Put what the mod adds to brackets of a statement into the target's, behind what the target adds.

    Raises ``BothChangedError`` where a side does anything else.
    """
    mine, there = dict(_compared(base[1], ours[1])), dict(_compared(base[1], theirs[1]))
    source, _, start = theirs
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, bytes]] = []
    for path, one in mine.items():
        if not any(one.gaps):
            continue
        other = there.get(path)
        if other is None:
            raise BothChangedError  # within what the target changed
        known = {ast.dump(element) for some in other.gaps for element in some}
        for n, gap in enumerate(one.gaps):
            new = [element for element in gap if ast.dump(element) not in known]
            before = [*other.kept[:n][-1:], *other.gaps[n]]
            if new and not before:
                raise BothChangedError  # nothing to put it behind
            if new:
                line, column = _end(before[-1])
                text = b"".join(b", " + _source(element, ours) for element in new)
                edits.append((sum(map(len, lines[: line - start])) + column, text))
    for at, text in sorted(edits, reverse=True):
        source = source[:at] + text + source[at:]
    return source


def _end(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)


def _source(node: ast.AST, side: Side) -> bytes:
    text, _, start = side
    line = getattr(node, "lineno", 0)
    if line != _end(node)[0]:
        raise BothChangedError  # its layout is that of another place
    lines = text.splitlines(keepends=True)
    return lines[line - start][getattr(node, "col_offset", 0) : _end(node)[1]]


def _compared(
    base: object, side: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], _Bracket]]:
    """Yield the brackets of a statement by their paths in it, with what a side adds to each.

    Raises ``BothChangedError`` where anything else differs.
    """
    if type(base) is not type(side):
        raise BothChangedError
    if isinstance(base, list) and isinstance(side, list):
        if path[-1] in {"keywords", "names", "elts"}:
            bracket = _bracket(base, side, adding=path[-1] != "elts" or path[-2] in {"[", "slice"})
            yield path, bracket
            side = bracket.kept
        if len(base) != len(side):
            raise BothChangedError
        for n, (one, other) in enumerate(zip(base, side, strict=True)):
            yield from _compared(one, other, (*path, n))
    elif isinstance(base, ast.AST):
        for name, value in ast.iter_fields(base):
            inner = (*path, "[") if isinstance(base, ast.List | ast.Set) else path
            yield from _compared(value, getattr(side, name), (*inner, name))
    elif base != side:
        raise BothChangedError


def _bracket(base: list[ast.AST], side: list[ast.AST], *, adding: bool) -> _Bracket:
    """Find the base's elements among those of a side, in their order; keywords go by their names.

    Nothing is ``adding`` to a tuple that is no subscript: others count on how many it has.
    """
    kept: list[ast.AST] = []
    gaps: list[list[ast.AST]] = [[]]
    for element in side:
        n = len(kept)
        same = len(base) == len(side) or (n < len(base) and _name(element) == _name(base[n]))
        if same:
            kept.append(element)
            gaps.append([])
        else:
            gaps[-1].append(element)
    names = [_name(element) for element in side]
    if any(gaps) and (not adding or len(set(names)) < len(names)):
        raise BothChangedError
    return _Bracket(kept, gaps)


def _name(element: ast.AST | str) -> str:
    if isinstance(element, ast.keyword):
        return element.arg or "**"
    return ast.dump(element) if isinstance(element, ast.AST) else element
