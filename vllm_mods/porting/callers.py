"""What upstream's own callers show of a name between two trees: code that is the same but for the name.

A piece is a statement without those inside it, a head of one, or a call. A piece of a class or function with
another name in it, which the same class or function of the target has and that of the base had not,
is a witness of the other name.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from vllm_mods.fit.shapes import Import
from vllm_mods.fit.symbols import Symbol
from vllm_mods.fit.walk import CodeScope, walk
from vllm_mods.fit.world import World, absolute
from vllm_mods.formats import syntax_tree

_REMOTE = 200
"""How many files of a remote tree are asked for; each is a request."""
_HEADS = (ast.stmt, ast.excepthandler, ast.match_case)
_Expression = TypeVar("_Expression", bound=ast.expr)


class Caller(NamedTuple):
    """A file that both trees have, with other bytes: as it was, and as it is."""

    path: str
    was: ast.Module
    now: ast.Module


class FailingLine(NamedTuple):
    """A line of a ported file of which fit says that it fails; ``added`` are the lines of the mod."""

    path: str
    tree: ast.Module
    line: int
    added: frozenset[int]


class Worlds(NamedTuple):
    """The base, the target and the target with the mod's changes."""

    before: World
    now: World
    after: World

    def callers(self, name: str, near: str) -> Iterator[Caller]:
        """Yield the files that mention a name and are not the same in base and target.

        Those whose paths are most like ``near`` come first where not all are read.
        """
        word = name.encode()
        for path in self._paths(near):
            was, now = self.before.glance(path), self.now.glance(path)
            if was is None or now is None or was == now or word not in was:
                continue
            old, new = syntax_tree.module(was), syntax_tree.module(now)
            if old is not None and new is not None:
                yield Caller(path, old, new)

    def _paths(self, near: str) -> list[str]:
        both = [one for one in self.before.paths() & self.now.paths() if one.endswith(".py")]
        parts = near.split("/")

        def apart(path: str) -> tuple[int, str]:
            same = (mine == its for mine, its in zip(path.split("/"), parts, strict=False))
            return (-sum(same), path)

        remote = self.before.tree.remote or self.now.tree.remote
        return sorted(both, key=apart)[: _REMOTE if remote else None]


def imported_module(path: str, node: ast.ImportFrom) -> str:
    """Return the module that names are imported from in a file."""
    return absolute(path, node.level, node.module or "")


def as_import(module: str, name: str) -> Import:
    """Return an import of a name, as a world is asked for it."""
    return Import(level=0, module=module, name=name, line=0)


def symbols(world: World, module: str, name: str) -> list[Symbol]:
    """Return what a name of a module means, as far as a world knows it."""
    answer = world.imported("", as_import(module, name))
    named = answer.symbols if answer.exists else ()
    return [one for one in named if one.binding is not None or one.module]


def imports(tree: ast.Module, path: str) -> dict[str, tuple[str, str]]:
    """Return what ``from … import`` binds: module and name; nothing that is bound twice to two things."""
    bound_to: dict[str, set[tuple[str, str]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = imported_module(path, node)
            for alias in node.names:
                bound_to.setdefault(alias.asname or alias.name, set()).add((module, alias.name))
    return {bound: next(iter(what)) for bound, what in bound_to.items() if len(what) == 1}


Pieces = Mapping[str, Mapping[str, ast.AST]]


def pieces(tree: ast.Module) -> Pieces:
    """Return the pieces of each class and function, by their text."""
    by_scope: dict[str, dict[str, ast.AST]] = {}
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope = f"{scope}.{node.name}"
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, _HEADS)]
        if not inner and isinstance(node, ast.stmt):
            parts: list[ast.AST] = [node]
        else:
            parts = [one for one in ast.iter_child_nodes(node) if one not in inner]
        for part in parts:
            if isinstance(part, ast.Import | ast.ImportFrom | ast.expr_context):
                continue
            for piece in (part, *(c for c in ast.walk(part) if isinstance(c, ast.Call))):
                by_scope.setdefault(scope, {})[ast.dump(piece)] = piece
        stack += [(child, scope) for child in inner]
    return by_scope


Span = tuple[int, int]
"""Where a node ends."""
Edit = Callable[[ast.AST], set[Span]]


class Witness(NamedTuple):
    """What of an edit the target has: of the places ``seen`` in scopes that it still has, the ``proven`` ones."""

    seen: frozenset[Span]
    proven: frozenset[Span]

    @property
    def whole(self) -> bool:
        """Whether each is proven."""
        return self.proven >= self.seen


def shown(was: Pieces, now: Pieces, edit: Edit) -> Witness:
    """Look for pieces, edited, that the target has in that scope and the base had not.

    ``edit`` changes a copy and returns what it changed in it. What is edited to itself may be in both.
    """
    seen: set[Span] = set()
    proven: set[Span] = set()
    for scope in was.keys() & now.keys():
        mine, target = was[scope], now[scope]
        for text, piece in mine.items():
            edited = copy.deepcopy(piece)
            spans = edit(edited)
            seen |= spans
            new = ast.dump(edited) if spans else ""
            if new in target and (new == text or (new not in mine and text not in target)):
                proven |= spans
    return Witness(frozenset(seen), frozenset(proven))


def span(node: ast.expr | ast.arg | ast.keyword) -> Span:
    """Return where a node ends, which a copy of it says too."""
    return node.end_lineno or 0, node.end_col_offset or 0


def renamed(old: str, new: str) -> Edit:
    """Return an edit that reads a name by another one; of a name alone it makes nothing else."""

    def edit(piece: ast.AST) -> set[Span]:
        names = [one for one in ast.walk(piece) if isinstance(one, ast.Name) and one.id == old]
        for name in names:
            name.id = new if old == new or not isinstance(piece, ast.Name) else old
        return {span(one) for one in names}

    return edit


def rebinds(tree: ast.Module, name: str) -> bool:
    """Tell whether anything but an import binds a name somewhere in a file."""
    return any(
        (isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.arg) and node.arg == name)
        or getattr(node, "name", None) == name
        for node in ast.walk(tree)
        if not isinstance(node, ast.alias)
    )


def sites(tree: ast.Module, kind: type[_Expression]) -> Iterator[tuple[_Expression, CodeScope]]:
    """Yield the expressions of a kind, each with the scope that it is in."""
    return ((one.node, one.scope) for one in walk(tree, None) if isinstance(one.node, kind))
