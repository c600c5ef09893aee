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

    ``kept`` are these, None for one that is gone; so ``gaps`` is one longer.
    """

    kept: list[ast.AST | None]
    gaps: list[list[ast.AST]]


def merge(base: Side, ours: Side, theirs: Side, *, fewer: bool = False) -> bytes:
    """Put what the mod adds to brackets of a statement into the target's, behind what the target adds.

    With ``fewer``, the target has taken elements out instead. Raises ``BothChangedError`` where a side does anything else.
    """
    mine, there = (
        dict(_compared(base[1], ours[1])),
        dict(_compared(base[1], theirs[1], fewer=fewer)),
    )
    source, _, start = theirs
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, bytes]] = []
    for path, one in mine.items():
        if not any(one.gaps):
            continue
        other = there.get(path)
        if other is None:
            raise BothChangedError  # within what the target changed
        known = {_name(element) for some in other.gaps for element in some}
        for n, gap in enumerate(one.gaps):
            new = [element for element in gap if _name(element) not in known]
            before = [*(one for one in other.kept[:n] if one is not None), *other.gaps[n]]
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
    base: object, side: object, path: tuple[str | int, ...] = (), *, fewer: bool = False
) -> Iterator[tuple[tuple[str | int, ...], _Bracket]]:
    """Yield the brackets of a statement by their paths in it, with what a side adds to each.

    With ``fewer``, what it has taken out instead. Raises ``BothChangedError`` where anything else differs.
    """
    if type(base) is not type(side):
        raise BothChangedError
    if isinstance(base, list) and isinstance(side, list):
        if path[-1] in {"keywords", "names", "elts"}:
            some = path[-1] != "elts" or path[-2] in {"[", "slice"}
            bracket = (_fewer if fewer else _bracket)(base, side, changing=some)
            yield path, bracket
            side = bracket.kept
        if len(base) != len(side):
            raise BothChangedError
        for n, (one, other) in enumerate(zip(base, side, strict=True)):
            if other is not None:
                yield from _compared(one, other, (*path, n), fewer=fewer)
    elif isinstance(base, ast.AST):
        for name, value in ast.iter_fields(base):
            inner = (*path, "[") if isinstance(base, ast.List | ast.Set) else path
            yield from _compared(value, getattr(side, name), (*inner, name), fewer=fewer)
    elif base != side:
        raise BothChangedError


def _fewer(base: list[ast.AST], side: list[ast.AST], *, changing: bool) -> _Bracket:
    """Find the elements of the base that a side still has; it may have no others."""
    rest = list(side)
    kept = [
        rest.pop(0) if rest and (_name(rest[0]) == _name(one) or len(base) == len(side)) else None
        for one in base
    ]
    if rest or (None in kept and not changing):
        raise BothChangedError
    return _Bracket(kept, [[] for _ in range(len(base) + 1)])


def _bracket(base: list[ast.AST], side: list[ast.AST], *, changing: bool) -> _Bracket:
    """Find the base's elements among those of a side, in their order; keywords go by their names.

    A tuple that is no subscript is not ``changing``: others count on how many it has.
    """
    kept: list[ast.AST | None] = []
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
    if any(gaps) and (not changing or len(set(names)) < len(names)):
        raise BothChangedError
    return _Bracket(kept, gaps)


def _name(element: ast.AST | str) -> str:
    if isinstance(element, ast.keyword):
        return element.arg or "**"
    return ast.dump(element) if isinstance(element, ast.AST) else element
