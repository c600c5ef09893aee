"""A change to a file that is several files by now, taken apart by the definitions that it is in. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from vllm_mods.base import line_diff
from vllm_mods.formats import syntax_tree
from vllm_mods.porting import outline
from vllm_mods.porting.outline import Outline


def parts(before: bytes, after: bytes, groups: Sequence[frozenset[str]]) -> list[bytes] | None:
    """Return ``after`` once for each group of top-level definitions, with the others as they were ``before``.

    An import that the change adds comes with the definitions that use it. None where the change does
    anything else outside of definitions: nobody can say in which file that belongs.
    """
    old, new = outline.read(before), outline.read(after)
    if old is None or new is None:
        return None
    added: list[tuple[int, int, frozenset[bytes]]] = []
    for i, j, k, end in line_diff.changes(old.lines, new.lines):
        names = _imports(b"".join(new.lines[k:end])) if i == j else None
        if names is None:
            return None
        added.append((k, end, names))
    return [b"".join(_part(old, new, added, group)) for group in groups]


def _part(
    old: Outline,
    new: Outline,
    added: Sequence[tuple[int, int, frozenset[bytes]]],
    group: frozenset[str],
) -> Iterator[bytes]:
    own = b"".join(one.text() for one in new.inner if one.name in group)
    words = frozenset(re.findall(rb"\w+", own))
    left = {n for k, end, names in added if words.isdisjoint(names) for n in range(k, end)}
    was, now = old.marked, new.marked
    for n, line in enumerate(new.lines):
        if outline.is_mark(line):
            yield from (now if now[line].name in group else was)[line].flat()
        elif n not in left:
            yield line


def _imports(text: bytes) -> frozenset[bytes] | None:
    """Return the names that lines bind which do nothing but import."""
    tree = syntax_tree.module(text)
    nodes = [] if tree is None else tree.body
    if tree is None or not all(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes):
        return None
    return frozenset(
        (alias.asname or alias.name).split(".")[0].encode()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )
