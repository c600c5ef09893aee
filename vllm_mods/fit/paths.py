"""Names that one branch sets and another does not, read after both in the same block.

A note, not an error: a branch may be the only one that is ever taken. Loops count as run, and
nothing is said where a condition or an exit between the branch and the use may know better.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vllm_mods.base.model import Level
from vllm_mods.fit.bodies import own
from vllm_mods.fit.flow import bound_by, functions, rows
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.signatures import DefNode, ScopeNode, every

_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)
# What is read in these is read later, or not at all.
_LATER = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.IfExp, ast.BoolOp),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)


def path_problems(path: str, tree: ast.Module, lines: frozenset[int]) -> Iterator[Problem]:
    """Judge every function that has one of some lines."""
    for node, scope in functions(tree, lines):
        yield from _function(path, node, scope, lines)


def _function(path: str, node: DefNode, scope: str, lines: frozenset[int]) -> Iterator[Problem]:
    blocks: list[list[ast.stmt]] = [node.body]
    for inner in own(node):
        if isinstance(inner, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(
            inner, ScopeNode
        ):
            blocks += [getattr(inner, name, []) for name in ("body", "orelse", "finalbody")]
    shared = {n for i in every(node) if isinstance(i, ast.Global | ast.Nonlocal) for n in i.names}
    shared |= {a.arg for a in every(node.args) if isinstance(a, ast.arg)}
    for block in blocks:
        for index, branch in enumerate(block):
            if not isinstance(branch, ast.If):
                continue
            names = _sometimes(branch)
            names -= shared | _above(node, branch.lineno) if names else shared
            for name, read in _reads(block[index + 1 :], names, _words(branch.test)):
                if read not in lines and lines.isdisjoint(rows(branch)):
                    continue
                text = f"{name} is read whatever `if {ast.unparse(branch.test)[:60]}` says"
                text += f", and not every path from line {branch.lineno} sets it"
                key = (scope, name, "one path")
                yield Problem("fit-undefined-name", path, read, scope, text, key, name, Level.NOTE)


def _sometimes(node: ast.If) -> set[str]:
    """Return what one way through an ``if`` sets and another, that goes on, does not."""
    if isinstance(node.test, ast.Constant):
        return set()
    ways = [_sets(node.body), _sets(node.orelse)]
    going = [way for way in ways if way is not None]
    if len(going) < 2:
        return set()
    return (going[0] ^ going[1]) - bound_by([node.test])


def _sets(block: list[ast.stmt]) -> set[str] | None:
    """Return what a block sets for certain or by a branch; ``None`` if its end may not be reached."""
    names: set[str] = set()
    for node in block:
        if any(isinstance(inner, _EXITS) for inner in every(node)):
            return None
        names |= bound_by([node])
    last = block[-1] if block else None
    # A function that never returns looks like any other.
    alone = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and not names
    return None if alone else names


def _above(node: ast.AST, line: int) -> set[str]:
    """Return what a function binds above a line, and what a loop around it may have bound."""
    found: set[str] = set()
    stack: list[ast.AST] = list(getattr(node, "body", ()))
    while stack:
        inner = stack.pop()
        if isinstance(inner, ast.stmt):
            if inner.lineno >= line:
                continue
            loops = isinstance(inner, ast.For | ast.AsyncFor | ast.While)
            if loops or line > (inner.end_lineno or 0):
                found |= bound_by([inner])
                continue
        for child in ast.iter_child_nodes(inner):
            if isinstance(child, ast.expr | ast.withitem):
                found |= bound_by([child])
            else:
                stack.append(child)
    return found


def _words(node: ast.AST) -> set[str]:
    """Return the names and attributes that stand in a piece of code."""
    found = (getattr(inner, "id", getattr(inner, "attr", None)) for inner in every(node))
    return {name for name in found if name is not None}


def _reads(block: list[ast.stmt], names: set[str], asked: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the first reading of each name that happens whatever the branch before it took.

    ``asked`` is what the branch asks about: an exit that asks about it too may know better.
    """
    left, rest = set(names), list(block)
    while rest and left:
        node = rest.pop(0)
        for name, line in _loads(_at_once(node)):
            if name in left:
                left.discard(name)
                yield name, line
        if isinstance(node, ast.With | ast.AsyncWith):
            left -= bound_by(node.items)
            rest = [*node.body, *rest]
            continue
        left -= bound_by([node])
        if any(isinstance(inner, _EXITS) for inner in every(node)) and asked & _words(node):
            return


def _at_once(node: ast.stmt) -> list[ast.AST]:
    """Return what a statement evaluates before it chooses a way."""
    match node:
        case ast.If() | ast.While():
            return [node.test]
        case ast.For() | ast.AsyncFor():
            return [node.iter]
        case ast.With() | ast.AsyncWith():
            return [item.context_expr for item in node.items]
        case ast.Match():
            return [node.subject]
        case ast.Try() | ast.ClassDef() | ast.Delete():
            return []
        case _:
            return [node]


def _loads(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names that evaluating some nodes reads at once, whatever they contain."""
    stack = nodes
    while stack:
        node = stack.pop()
        if isinstance(node, _LATER):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        stack.extend(ast.iter_child_nodes(node))
