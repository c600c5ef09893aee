"""Imports that a mod adds, written anew for where the names are by now."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.fit.found import Symbol
from vllm_mods.fit.shapes import Class, Function
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

_ALIKE = 0.5


class Move(NamedTuple):
    """A name of an import, and the module and the name that it is by now."""

    node: ast.ImportFrom
    alias: ast.alias
    module: str
    name: str


def moved(data: bytes, moves: Sequence[Move], added: frozenset[int]) -> bytes:
    """Import names from where they are by now, under the names that they were bound to.

    An import that shares its lines with other code, or of which a line is not the mod's, stays.
    """
    lines = list(line_diff.split(data))
    nodes = {id(one.node): one.node for one in moves}
    for node in sorted(nodes.values(), key=lambda one: -one.lineno):
        own = [one for one in moves if one.node is node]
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        there = lines[first:last]
        indent = there[0][: node.col_offset]
        end = b"\r\n" if there[-1].endswith(b"\r\n") else b"\n"
        if not there[0].startswith(indent + b"from") or indent.strip():
            continue
        if there[-1][node.end_col_offset :].strip():
            continue
        gone = [one.alias for one in own]
        rest = [one for one in node.names if one not in gone]
        new = [
            ast.ImportFrom(one.module, [ast.alias(one.name, _bound(one.alias, one.name))], level=0)
            for one in own
        ]
        if set(range(first + 1, last + 1)) <= added:
            kept = [ast.ImportFrom(node.module, rest, node.level)] if rest else []
            there = []
        else:
            kept = []
            rows = {one.lineno - 1 for one in gone}
            if not rest or not rows <= {n - 1 for n in added}:
                continue
            if not all(_alone(one, lines[one.lineno - 1]) for one in gone):
                continue
            there = [line for n, line in enumerate(there, first) if n not in rows]
        text = [indent + ast.unparse(one).encode() + end for one in (*kept, *new)]
        lines[first:last] = [*there, *text]
    return b"".join(lines)


def _alone(alias: ast.alias, line: bytes) -> bool:
    name = re.escape(alias.name.encode())
    return re.fullmatch(rb"\s*%b(?:\s+as\s+\w+)?\s*,?\s*" % name, line) is not None


def _bound(alias: ast.alias, name: str) -> str | None:
    bound = alias.asname or alias.name
    return None if bound == name else bound


def alike(before: World, old: Symbol, now: World, new: Symbol) -> bool:
    """Tell whether two definitions have half of their lines in common, their names apart."""
    if (old.module is None) != (new.module is None):
        return False
    mine, its = _text(before, old), _text(now, new)
    if not mine or not its:
        return False
    return len(line_diff.matching(mine, its)) >= _ALIKE * max(len(mine), len(its))


def _text(world: World, found: Symbol) -> tuple[bytes, ...]:
    """Return the lines of a definition or a module that say something, with no name of its own."""
    data = world.read(found.module or found.path)
    tree = syntax_tree.module(data) if data is not None else None
    if tree is None or data is None:
        return ()
    lines = line_diff.split(data)
    if not found.module:
        line = getattr(found.binding, "line", 0)
        nodes = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno == line]
        if len(nodes) != 1:
            return ()
        lines = lines[line - 1 : nodes[0].end_lineno]
    if isinstance(found.binding, Function | Class):
        word = re.compile(rb"\b%b\b" % re.escape(found.binding.name.encode()))
        lines = tuple(word.sub(b"_", line) for line in lines)
    return tuple(line.strip() for line in lines if line.strip())
