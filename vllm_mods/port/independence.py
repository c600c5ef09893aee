"""Whether the order of two groups of statements could matter. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def holds(first: Sequence[ast.stmt], second: Sequence[ast.stmt]) -> bool:
    """Tell whether the first may go before the second, of which nothing knew it.

    Neither binds what the other reads; both bind one thing only where the first leaves the function
    after that; the second cannot leave it.
    """
    mine, theirs = list(_walked(first)), list(_walked(second))
    if any(isinstance(node, _LEAVES) for node in theirs):
        return False
    bound, bound_there = set(_bound(mine)), set(_bound(theirs))
    if bound & set(_read(second)) or bound_there & set(_read(first)):
        return False
    return not set(_bound(_walked(first, leaving=False))) & bound_there


def skips(first: Sequence[ast.stmt], new: Sequence[ast.stmt], old: Sequence[ast.stmt]) -> bool:
    """Tell whether a group that leaves the function would leave out what ``new`` makes and ``old`` did not.

    That is an attribute or an element, which others may count on by now; names end with the function.
    """
    if not any(isinstance(node, _LEAVES) for node in _walked(first)):
        return False
    lasting = {name for name in _bound(_walked(new)) if "." in name or "[" in name}
    return bool(lasting - set(_bound(_walked(old))) - set(_bound(_walked(first))))


def _walked(nodes: Sequence[ast.AST], *, leaving: bool = True) -> Iterator[ast.AST]:
    """Yield the nodes that run with a block: not what is in functions and classes.

    Without ``leaving``, not what is in blocks that end the function.
    """
    for node in nodes:
        yield node
        if isinstance(node, _SCOPES):
            continue
        for _, value in ast.iter_fields(node):
            inner = value if isinstance(value, list) else [value]
            ends = bool(inner) and isinstance(inner[-1], ast.Return | ast.Raise)
            if leaving or not ends:
                yield from _walked(
                    [one for one in inner if isinstance(one, ast.AST)], leaving=leaving
                )


def _bound(nodes: Iterator[ast.AST] | Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                yield ast.unparse(node)
                if isinstance(node, ast.Subscript):
                    yield ast.unparse(node.value)
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler
        ):
            yield node.name or ""


def _read(nodes: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield what is read, in functions and classes too."""
    for one in nodes:
        for node in ast.walk(one):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield ast.unparse(node)
            elif isinstance(node, ast.AugAssign):
                yield ast.unparse(node.target)
