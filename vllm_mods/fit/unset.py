"""Names that nothing has set where they are read, by the type checker's words: for certain, or on one path."""

from __future__ import annotations

import ast
import re

from vllm_mods.fit.asked import Asked
from vllm_mods.fit.signatures import DefNode, every
from vllm_mods.fit.summary import target_names

_QUOTED = re.compile(r"`(\w+)`")
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp)
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)


def unset(asked: Asked) -> bool | None:
    """Names that nothing defines are looked for by themselves; here are those that are not set yet."""
    names = _QUOTED.findall(asked.said.text)
    inside = [one for one in asked.around if isinstance(one, DefNode)]
    if not names or not inside:
        return None
    if asked.said.rule == "unresolved-global":
        # a plain assignment makes the global
        stores = [n for n in every(asked.site.tree) if names[0] in _bound_by(n)]
        return all(isinstance(n, ast.AugAssign | ast.Delete) for n in stores) or None
    bound = any(names[0] in _bound_by(node) for node in every(inside[0]))
    return True if bound else None


def _bound_by(node: ast.AST) -> tuple[str, ...]:  # noqa: PLR0911 - a kind of statement per branch
    """Return what one node binds by itself; an assignment its plain names."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return tuple(name for target in targets for name in target_names(target))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            return tuple(target_names(target))
        case ast.NamedExpr(target=ast.Name(id=name)):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.alias():
            return ((node.asname or node.name).partition(".")[0],)
        case ast.ExceptHandler(name=str(name)):
            return (name,)
        case ast.withitem(optional_vars=target):
            return tuple(target_names(target))
        case _:
            return ()


def sometimes_unset(asked: Asked) -> bool | None:
    """Make a note of what one branch sets and another does not, where nothing near may know better."""
    return None if _is_correlated(asked) else False


def _is_correlated(asked: Asked) -> bool:
    """Tell whether a condition or an exit between the branch that sets a name and its use may know better."""
    names = _QUOTED.findall(asked.said.text)
    function = next((one for one in asked.around if isinstance(one, DefNode)), None)
    if not names or function is None:
        return True
    depth = list(asked.around).index(function)
    if any(isinstance(one, _BLOCKS) for one in asked.around[:depth]):
        return True
    line, asked_for, setting = asked.said.line, set[str](), 0
    for node in every(function):
        if isinstance(node, ast.If) and node.lineno < line and names[0] in _stored(node):
            asked_for |= _named(node.test)
            setting = max(setting, node.end_lineno or 0)
    if not setting:
        return True  # a loop or a try: whether it ran, nobody knows
    return any(
        setting < node.lineno < line
        and any(isinstance(inner, _EXITS) for inner in every(node))
        and asked_for & _named(node)
        for node in function.body
    )


def _stored(node: ast.AST) -> set[str]:
    names = (n for n in every(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name.id for name in names}


def _named(node: ast.AST) -> set[str]:
    names = (getattr(inner, "id", getattr(inner, "attr", None)) for inner in every(node))
    return {name for name in names if name is not None}
