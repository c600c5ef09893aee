"""Which lines of a file a change added or touched, and which it left."""

import ast
import re
from collections.abc import Iterable
from functools import lru_cache

from vllm_mods.base import line_diff


def added_lines(before: bytes | None, after: bytes) -> frozenset[int]:
    """Return the 1-based lines of ``after`` that ``before`` does not have in that place."""
    stretches = _changed(before, after)
    return frozenset(line for first, last in stretches for line in range(first + 1, last + 1))


def touched_lines(before: bytes | None, after: bytes) -> frozenset[int]:
    """Return the added lines, and those beside where lines are gone."""
    gone = [first for first, last in _changed(before, after) if first == last]
    beside = (line for first in gone for line in (first, first + 1))
    return added_lines(before, after) | frozenset(beside)


def lines_with(data: bytes, names: Iterable[str], before: bytes = rb"\b") -> frozenset[int]:
    """Return the lines of a file that have one of some names, behind what the pattern ``before`` takes."""
    if not (words := b"|".join(sorted(map(str.encode, names)))):
        return frozenset()
    found = re.finditer(before + rb"(?:%b)\b" % words, data)
    return frozenset(data.count(b"\n", 0, match.start()) + 1 for match in found)


def rows(node: ast.stmt | ast.expr) -> range:
    """Return the lines of a node."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


@lru_cache(maxsize=256)
def _changed(before: bytes | None, after: bytes) -> tuple[tuple[int, int], ...]:
    """Return the stretches of ``after`` that differ, as slices of its lines; empty where lines are gone."""
    new = after.splitlines()
    if before is None:
        return ((0, len(new)),)
    old = before.splitlines()
    return tuple((first, last) for _, _, first, last in line_diff.changes(old, new))
