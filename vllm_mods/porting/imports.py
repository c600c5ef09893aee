"""Imports that a mod adds, of names that are elsewhere by now: followed to the one module that defines them.

Only a line that the mod adds is edited, and never without saying so.
"""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.shapes import Class, Function, Import, Symbol
from vllm_mods.fit.world import SummaryCache, World, absolute
from vllm_mods.formats import syntax_tree
from vllm_mods.placing import relocation
from vllm_mods.porting import outline
from vllm_mods.porting.follow import definition, likeness
from vllm_mods.porting.repair import Repair

_ALIKE = 0.5


class Move(NamedTuple):
    """A name of an import, and the module that defines it by now."""

    node: ast.ImportFrom
    alias: ast.alias
    module: str


def follow(
    cuts: Sequence[FileChange], findings: Sequence[Finding], base: Tree, target: Tree
) -> Repair:
    """Let failing imports of the mod follow what upstream moved. Raises ``TreeError``."""
    cache = SummaryCache()
    before, now = World(base, {}, cache), World(target, {}, cache)
    failed = (finding for finding in findings if finding.level is Level.ERROR)
    errors = [finding for finding in failed if finding.code == FindingCode.FIT_IMPORT]
    notes: dict[str, None] = {}
    edited = []
    for cut in cuts:
        failing = {finding.line for finding in errors if finding.path == cut.path}
        tree = syntax_tree.module(cut.after) if cut.after is not None and failing else None
        data = cut.after
        # columns in bytes are those of the file if it is UTF-8, without a mark at its beginning
        if tree is None or data is None or syntax_tree.decoded(data).encode() != data:
            edited.append(cut)
            continue
        added = added_lines(cut.before, data)
        moves = list(_moves(before, now, cut.path, tree, failing & added))
        data = _rewrite(data, moves, added)
        edited.append(cut._replace(after=data))
        for move in moves if data != cut.after else ():
            name, old = move.alias.name, _module(cut.path, move.node)
            notes[f"{name} of {old} is now {name} of {move.module}, its only definition"] = None
    return Repair(tuple(edited), tuple(notes))


def _module(path: str, node: ast.ImportFrom) -> str:
    return absolute(path, node.level, node.module or "")


def _moves(
    before: World, now: World, path: str, tree: ast.Module, lines: Collection[int | None]
) -> Iterator[Move]:
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)):
        module = _module(path, node)
        for alias in node.names:
            if alias.lineno in lines and (home := _home(before, now, module, alias.name)):
                yield Move(node, alias, home)


def _symbols(world: World, module: str, name: str) -> list[Symbol]:
    answer = world.imported("", Import(level=0, module=module, name=name, line=0))
    named = answer.symbols if answer.exists else ()
    return [one for one in named if one.binding is not None or one.module]


def _home(before: World, now: World, module: str, name: str) -> str | None:
    """Return the one other module that defines a name by now, and alike; None if that is not one."""
    old = _symbols(before, module, name)
    if len(old) != 1 or _symbols(now, module, name):
        return None
    place = module.replace(".", "/") + ".py"
    homes = list(relocation.defining(now.tree, place, [name], before.tree))
    if len(homes) != 1:
        return None
    home = homes[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    was, new = (_symbols(world, home, name) for world in (before, now))
    if len(new) != 1 or (was and was != old) or not _alike(before, old[0], now, new[0]):
        return None
    return home


def _rewrite(data: bytes, moves: Sequence[Move], added: frozenset[int]) -> bytes:
    """Import names from where they are by now, bound as they were.

    An import that shares its lines with other code, or of which a line is not the mod's, stays.
    """
    lines = list(line_diff.split(data))
    nodes = {id(one.node): one.node for one in moves}
    for node in sorted(nodes.values(), key=lambda node: -node.lineno):
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
        bound = ((one.module, ast.alias(one.alias.name, one.alias.asname)) for one in own)
        new = [ast.ImportFrom(module, [alias], level=0) for module, alias in bound]
        if set(range(first + 1, last + 1)) <= added:
            kept = [ast.ImportFrom(node.module, rest, node.level)] if rest else []
            block = []
        else:
            kept = []
            rows = {one.lineno for one in gone}
            if not rest or not rows <= added:
                continue
            if not all(_alone(one, lines[one.lineno - 1]) for one in gone):
                continue
            block = [line for n, line in enumerate(block, node.lineno) if n not in rows]
        text = [indent + ast.unparse(one).encode() + end for one in (*kept, *new)]
        lines[first:last] = [*block, *text]
    return b"".join(lines)


def _alone(alias: ast.alias, line: bytes) -> bool:
    name = re.escape(alias.name.encode())
    return re.fullmatch(rb"\s*%b(?:\s+as\s+\w+)?\s*,?\s*" % name, line) is not None


def _alike(before: World, old: Symbol, now: World, new: Symbol) -> bool:
    """Tell whether two classes or functions have half of their lines in common."""
    mine, its = _definition(before, old), _definition(now, new)
    return mine is not None and its is not None and likeness(mine, its) >= _ALIKE


def _definition(world: World, symbol: Symbol) -> outline.Outline | None:
    whole = outline.read(world.read(symbol.path) or b"")
    name = symbol.binding.name if isinstance(symbol.binding, Function | Class) else ""
    return None if whole is None else definition(whole, name)
