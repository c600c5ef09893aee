"""Imports that a mod adds: where the names are by now, and how they are written there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.fit.shapes import Class, Function
from vllm_mods.fit.symbols import Symbol
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree
from vllm_mods.placing import relocation
from vllm_mods.porting import callers
from vllm_mods.porting.callers import Caller, FailingLine, Worlds

_ALIKE = 0.5


class Move(NamedTuple):
    """A name of an import, and the module and the name that it is by now."""

    node: ast.ImportFrom
    alias: ast.alias
    module: str
    name: str


def moves(sides: Worlds, spot: FailingLine) -> Iterator[str | Move]:
    """Find where the names are by now of which the import on a line fails."""
    for node in ast.walk(spot.tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            module = callers.imported_module(spot.path, node)
            if alias.lineno != spot.line or _exists(sides.after, module, alias.name) is not False:
                continue
            new = _moved(sides, spot.path, module, alias.name)
            if new is not None:
                yield f"{alias.name} of {module} is {new.name} of {new.module} {new.why}"
                yield Move(node, alias, new.module, new.name)


class _NewPlace(NamedTuple):
    module: str
    name: str
    why: str


def _moved(sides: Worlds, path: str, module: str, name: str) -> _NewPlace | None:
    """Return where upstream's callers have a name from by now, or where it alone is; None if that is not one place."""
    old = callers.symbols(sides.before, module, name)
    homes: dict[object, _NewPlace] = {}
    for caller in sides.callers(name, path):
        was, now = (callers.imports(one, caller.path) for one in (caller.was, caller.now))
        for bound in [one for one, what in was.items() if what == (module, name)]:
            for local, home in now.items():
                if home in was.values() or (bound in now and local != bound):
                    continue
                if not _same_use(caller, bound, local):
                    if local == bound:
                        homes[home] = _NewPlace(*home, "")  # another thing, for all one can tell
                    continue
                new = callers.symbols(sides.now, *home)
                if not old or len(new) != 1 or not _is_new(sides, home, old):
                    return None
                if not alike(sides.before, old[0], sides.now, new[0]):
                    return None
                homes.setdefault(new[0], _NewPlace(*home, f"by now, as {caller.path} has it"))
    if not homes:
        return _home(sides, module, name, old)
    (place,) = homes.values() if len(homes) == 1 else (None,)
    return place if place is not None and place.why else None


def _home(sides: Worlds, module: str, name: str, old: Sequence[Symbol]) -> _NewPlace | None:
    """Return the one other file that defines a name by now, and alike; None if that is not one."""
    if len(old) != 1 or callers.symbols(sides.now, module, name):
        return None
    homes = list(relocation.defining(sides.now.tree, module.replace(".", "/") + ".py", [name]))
    if len(homes) != 1:
        return None
    home = homes[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    was, new = (callers.symbols(world, home, name) for world in (sides.before, sides.now))
    if len(new) != 1 or (was and was != old) or not alike(sides.before, old[0], sides.now, new[0]):
        return None
    return _NewPlace(home, name, "by now, and nowhere else")


def _same_use(caller: Caller, old: str, new: str) -> bool:
    if callers.rebinds(caller.was, old) or callers.rebinds(caller.now, new):
        return False
    edit = callers.renamed(old, new)
    witness = callers.shown(callers.pieces(caller.was), callers.pieces(caller.now), edit)
    return bool(witness.proven) and (witness.whole or old == new)


def _is_new(sides: Worlds, home: tuple[str, str], old: Sequence[Symbol]) -> bool:
    """Tell whether the base had nothing of that name there, or the same thing as in the old place."""
    return _exists(sides.before, *home) is False or callers.symbols(sides.before, *home) == old


def _exists(world: World, module: str, name: str) -> bool | None:
    return world.imported("", callers.as_import(module, name)).exists


def move(data: bytes, moves: Sequence[Move], added: frozenset[int]) -> bytes:
    """Import names from where they are by now, under the names that they were bound to.

    An import that shares its lines with other code, or of which a line is not the mod's, stays.
    """
    lines = list(line_diff.split(data))
    nodes = {id(one.node): one.node for one in moves}
    for node in sorted(nodes.values(), key=lambda one: -one.lineno):
        own = [one for one in moves if one.node is node]
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        block = lines[first:last]
        indent = block[0][: node.col_offset]
        end = b"\r\n" if block[-1].endswith(b"\r\n") else b"\n"
        if not block[0].startswith(indent + b"from") or indent.strip():
            continue
        if block[-1][node.end_col_offset :].strip():
            continue
        gone = [one.alias for one in own]
        rest = [one for one in node.names if one not in gone]
        new = [
            ast.ImportFrom(one.module, [ast.alias(one.name, _bound(one.alias, one.name))], level=0)
            for one in own
        ]
        if set(range(first + 1, last + 1)) <= added:
            kept = [ast.ImportFrom(node.module, rest, node.level)] if rest else []
            block = []
        else:
            kept = []
            rows = {one.lineno - 1 for one in gone}
            if not rest or not rows <= {n - 1 for n in added}:
                continue
            if not all(_alone(one, lines[one.lineno - 1]) for one in gone):
                continue
            block = [line for n, line in enumerate(block, first) if n not in rows]
        text = [indent + ast.unparse(one).encode() + end for one in (*kept, *new)]
        lines[first:last] = [*block, *text]
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


def _text(world: World, symbol: Symbol) -> tuple[bytes, ...]:
    """Return the lines of a definition or a module that say something, with no name of its own."""
    data = world.read(symbol.module or symbol.path)
    tree = syntax_tree.module(data) if data is not None else None
    if tree is None or data is None:
        return ()
    lines = line_diff.split(data)
    if not symbol.module:
        line = getattr(symbol.binding, "line", 0)
        nodes = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno == line]
        if len(nodes) != 1:
            return ()
        lines = lines[line - 1 : nodes[0].end_lineno]
    if isinstance(symbol.binding, Function | Class):
        word = re.compile(rb"\b%b\b" % re.escape(symbol.binding.name.encode()))
        lines = tuple(word.sub(b"_", line) for line in lines)
    return tuple(line.strip() for line in lines if line.strip())
