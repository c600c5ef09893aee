"""The code of a function that a summary only names, read when a question needs it."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from vllm_mods.fit.lines import rows
from vllm_mods.fit.shapes import Function
from vllm_mods.fit.signatures import DefNode, ScopeNode, children
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree


def definition(world: World, path: str, function: Function) -> DefNode | None:
    """Return the statement that a summary was made of."""
    node = _scopes(world.read(path) or b"").get((function.line, function.name))
    return node if isinstance(node, DefNode) else None


def scope_at(world: World, path: str, line: int) -> str:
    """Return the dotted chain of classes and functions around a line; a search only passes over the file."""
    around = [n for n in _scopes(world.glance(path) or b"").values() if line in rows(n)]
    return ".".join(node.name for node in sorted(around, key=lambda node: node.lineno))


@lru_cache(maxsize=64)
def _scopes(data: bytes) -> dict[tuple[int, str], DefNode | ast.ClassDef]:
    """Return every class and function by its line and name."""
    nodes = syntax_tree.all_statements(syntax_tree.module(data) or ast.Module([], []))
    return {(node.lineno, node.name): node for node in nodes if isinstance(node, ScopeNode)}


def _own(node: DefNode) -> Iterator[ast.AST]:
    """Yield what is below a function and not below another one inside it."""
    stack: list[ast.AST] = [*node.body]
    while stack:
        inner = stack.pop()
        yield inner
        if not isinstance(inner, ScopeNode | ast.Lambda):
            stack.extend(children(inner))


def is_generator(node: DefNode) -> bool:
    """Tell whether a function yields."""
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _own(node))


def only_raises(world: World, path: str, function: Function) -> bool:
    """Tell whether a function says itself that nobody is to call it."""
    node = definition(world, path, function)
    start = 1 if node and ast.get_docstring(node) else 0
    return node is not None and [*map(type, node.body[start:])] == [ast.Raise]


def arities(node: DefNode | None) -> frozenset[int | None]:
    """Return the lengths of the tuples that a function returns, ``None`` for what can't be told."""
    if node is None or is_generator(node):
        return frozenset((None,))
    returns = (inner for inner in _own(node) if isinstance(inner, ast.Return))
    return frozenset(length_of(inner.value) for inner in returns)


def length_of(value: ast.expr | None) -> int | None:
    """Return how many values a tuple has, ``None`` for what can't be told."""
    if not isinstance(value, ast.Tuple) or any(isinstance(x, ast.Starred) for x in value.elts):
        return None
    return len(value.elts)
