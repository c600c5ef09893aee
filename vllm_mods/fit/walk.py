"""Nodes of a file with the classes and functions around them."""

from __future__ import annotations

import ast
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import Parameter
from itertools import takewhile
from typing import NamedTuple

from vllm_mods.fit.shapes import Import
from vllm_mods.fit.signatures import (
    DefNode,
    ScopeNode,
    bindings,
    children,
    dotted,
    every,
    parameters_of,
    receiver_of,
    tests_typing,
)
from vllm_mods.formats import syntax_tree

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ASKING = {"parameters", "__version__", "__version_tuple__", "Version", "__code__"}
_IMPORT_ERRORS = {"", "ImportError", "ModuleNotFoundError", "Exception", "BaseException", "OSError"}
# What a local name was bound by: a parameter, an import, or something of which nothing is known.
Source = Parameter | Import | None


@dataclass(slots=True)
class CodeScope:
    """A module, class, function or comprehension. ``name`` is the dotted chain, ``""`` outside."""

    node: ast.AST
    name: str
    parent: CodeScope | None = None
    typing_only: bool = False
    guarded: bool = False
    tolerant: bool = False
    postponed: bool = False  # nobody evaluates its annotations
    stating: bool = False  # an annotation

    def around(self) -> Iterator[CodeScope]:
        """Yield the scope and those that it stands in, the nearest first."""
        scope: CodeScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def in_function(self) -> Iterator[CodeScope]:
        """Yield the scope and those around it, as far as the class or module that they stand in."""
        return takewhile(
            lambda scope: not isinstance(scope.node, ast.Module | ast.ClassDef), self.around()
        )


class CodeSite(NamedTuple):
    """A node and where it stands."""

    node: ast.expr | ast.stmt
    scope: CodeScope


def walk(tree: ast.Module, lines: frozenset[int]) -> Iterator[CodeSite]:
    """Yield the statements and expressions that touch some lines."""
    ordered = [*sorted(lines), sys.maxsize]
    whole = CodeScope(tree, "", postponed=_postpones(tree))
    stack: list[tuple[ast.AST, CodeScope]] = [(tree, whole)]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, ast.stmt | ast.expr):
            end = node.end_lineno or node.lineno
            start = syntax_tree.first_line(node) if isinstance(node, ScopeNode) else node.lineno
            if ordered[bisect_left(ordered, start)] > end:
                continue
            yield CodeSite(node, scope)
        stated = getattr(node, "annotation", None) or getattr(node, "returns", None)
        for child, inner in reversed(_children(node, scope)):
            if child is stated:
                local = isinstance(node, ast.AnnAssign) and isinstance(scope.node, DefNode)
                unread = scope.typing_only or local or scope.postponed
                stack.append((child, replace(inner, stating=True, typing_only=unread)))
            else:
                stack.append((child, inner))


def sites_with(data: bytes, pattern: bytes | re.Pattern[bytes]) -> Iterator[CodeSite]:
    """Yield what stands on the lines of a file that have what a pattern takes."""
    find = re.compile(pattern).search
    lines = frozenset(number for number, row in enumerate(data.splitlines(), 1) if find(row))
    parsed = syntax_tree.module(data) if lines else None
    return walk(parsed, lines) if parsed else iter(())


def _postpones(tree: ast.Module) -> bool:
    """Tell whether a module asks that its annotations are not evaluated."""
    futures = (n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__")
    return any(alias.name == "annotations" for node in futures for alias in node.names)


def _children(node: ast.AST, scope: CodeScope) -> list[tuple[ast.AST, CodeScope]]:
    if isinstance(node, ScopeNode):
        inner = _inside(node, scope, node.name)
        # Decorators, defaults and annotations belong to the scope around.
        body = frozenset(node.body)
        return [(c, inner if c in body else scope) for c in children(node)]
    if isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
        inner = _inside(node, scope, "")
        return [(child, inner) for child in children(node)]
    if isinstance(node, ast.If) and tests_typing(node):
        inner = replace(scope, typing_only=True)
        return [*((c, inner) for c in node.body), *((c, scope) for c in node.orelse)]
    if isinstance(node, ast.If | ast.IfExp | ast.Match):
        test = node.subject if isinstance(node, ast.Match) else node.test
        named = {name for one in scope.around() for name in _answers(one.node)}
        if any(asks_for_version(n) or getattr(n, "id", "") in named for n in every(test)):
            inner = replace(scope, tolerant=True, guarded=True)
            return [(c, scope if c is test else inner) for c in children(node)]
    if isinstance(node, ast.Try):
        return [*_try(node, scope)]
    if isinstance(node, ast.With):  # ``with suppress(TypeError)`` does what a ``try`` does
        given = (arg for item in node.items for arg in getattr(item.context_expr, "args", ()))
        handlers = [ast.ExceptHandler(kind, body=[]) for kind in given]
        scope = next(_try(ast.Try(node.body, handlers, [], []), scope))[1]
    return [(child, scope) for child in children(node)]


@lru_cache(maxsize=256)
def _answers(node: ast.AST) -> frozenset[str]:
    """Return the names in a module, class or function that have what was asked of a version."""
    stored = (one for one in children(node) if isinstance(one, ast.Assign))
    asked = (one for one in stored if any(map(asks_for_version, every(one.value))))
    return frozenset(ast.unparse(target) for one in asked for target in one.targets)


def asks_for_version(node: ast.AST) -> bool:
    """Tell whether what depends on a node is for other versions: ``signature(f).parameters``, ``vllm.__version__``, ``vllm_version_is``, ``">=0.26"``."""
    word = getattr(node, "attr", getattr(node, "id", ""))
    asks = word in _ASKING or dotted(node) == "version.parse"
    asks |= isinstance(node, ast.Call) and ast.unparse(node).endswith("version('vllm')")
    named = "vllm_version" in word.lower() or "version_is" in word.lower()
    asks |= bool(re.match(r"[<>=!~]=? ?\d+\.\d", str(getattr(node, "value", ""))))
    return asks or named or named_module(node, "find_spec") is not None


def named_module(node: ast.AST, function: str) -> str | None:
    """Return the module of vLLM that a call of some function names, ``None`` for anything else."""
    match node:
        case ast.Call(
            func=ast.Name(id=called) | ast.Attribute(attr=called),
            args=[ast.Constant(value=str(name)), *_],
        ) if called == function and name.startswith("vllm."):
            return name
    return None


def _try(node: ast.Try, scope: CodeScope) -> Iterator[tuple[ast.AST, CodeScope]]:
    kinds = caught(node)
    guarded = not kinds.isdisjoint(_IMPORT_ERRORS)
    inner = replace(
        scope,
        guarded=scope.guarded or guarded,
        # A bare ``except Exception`` is no sign that the code expects to be wrong itself, unless it lets that be.
        tolerant=scope.tolerant
        or not kinds.isdisjoint(("AttributeError", "TypeError"))
        or any(_lets_be(node, handler) for handler in node.handlers),
    )
    yield from ((child, inner) for child in node.body)
    # only where these fail it is entered
    is_fallback = guarded and all(isinstance(n, ast.Import | ast.ImportFrom) for n in node.body)
    fallback = replace(scope, guarded=True) if is_fallback else scope
    yield from ((child, fallback) for child in node.handlers)
    yield from ((child, scope) for child in (*node.orelse, *node.finalbody))


def caught(node: ast.Try) -> set[str]:
    """Return the last words of what a ``try`` catches, ``""`` for anything."""
    types = (handler.type for handler in node.handlers)
    kinds = (kind for one in types for kind in (one.elts if isinstance(one, ast.Tuple) else [one]))
    return {"" if kind is None else (dotted(kind) or "?").rpartition(".")[2] for kind in kinds}


def _lets_be(node: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler of everything passes, or sets what the block was to set."""
    if handler.type is not None and dotted(handler.type) not in {"Exception", "BaseException"}:
        return False
    passes = all(isinstance(one, ast.Pass | ast.Continue) for one in handler.body)
    return passes or not _set_in(node.body).isdisjoint(_set_in(handler.body))


def _set_in(body: list[ast.stmt]) -> set[str]:
    """Return what some statements assign, unless they raise."""
    nodes = [node for statement in body for node in every(statement)]
    if any(isinstance(node, ast.Raise) for node in nodes):
        return set()
    targets = (t for node in nodes if isinstance(node, ast.Assign) for t in node.targets)
    return {ast.unparse(target) for target in targets}


def _inside(node: ast.AST, scope: CodeScope, name: str) -> CodeScope:
    chain = f"{scope.name}.{name}" if scope.name and name else scope.name or name
    return replace(scope, node=node, name=chain, parent=scope)


@lru_cache(maxsize=256)
def local_names(node: ast.AST) -> dict[str, list[Source]]:
    """Return what the names local to a function, or a comprehension, were bound by."""
    bound: dict[str, list[Source]] = {}
    if isinstance(node, _COMPREHENSIONS):
        for generator in node.generators:
            bound.update((name, [None]) for name, _ in bindings(generator.target))
    if isinstance(node, DefNode | ast.Lambda):
        for parameter in parameters_of(node.args):
            bound[parameter.name] = [parameter]
    if isinstance(node, DefNode):
        inside = [pair for statement in node.body for pair in bindings(statement)]
        elsewhere = {name for name, by in inside if isinstance(by, ast.Global | ast.Nonlocal)}
        for name, by in inside:
            if name not in elsewhere:
                bound.setdefault(name, []).append(by if isinstance(by, Import) else None)
    return bound


def receiver(scope: CodeScope) -> str | None:
    """Return a method's first parameter, if ``scope`` is a method."""
    around = scope.parent and scope.parent.node
    if isinstance(scope.node, DefNode) and isinstance(around, ast.ClassDef):
        return receiver_of(scope.node)
    return None
