"""Names that nothing has set where they are read, by the type checker's words: for certain, or on one path."""

import ast
import re

from vllm_mods.fit.asked import Asked
from vllm_mods.fit.signatures import DefNode, every

_QUOTED = re.compile(r"`(\w+)`")
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp)
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)


def unset(asked: Asked) -> bool | None:
    """Names that nothing defines are looked for by themselves; here are those that are not set yet."""
    names = _QUOTED.findall(asked.diagnostic.text)
    inside = [one for one in asked.around if isinstance(one, DefNode)]
    if not names or not inside:
        return None
    if asked.diagnostic.rule == "unresolved-global":
        # a plain assignment makes the global
        augmented = [n.target for n in every(asked.tree) if isinstance(n, ast.AugAssign)]
        bound = [n for n in every(asked.tree) if _bound_by(n) == names[0] and n not in augmented]
        return all(isinstance(getattr(n, "ctx", None), ast.Del) for n in bound) or None
    return any(_bound_by(node) == names[0] for node in every(inside[0])) or None


def _bound_by(node: ast.AST) -> str | None:
    """Return the name that one node binds, or takes away."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store() | ast.Del())
            | ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.ExceptHandler(name=str(name))
        ):
            return name
        case ast.alias():
            return (node.asname or node.name).partition(".")[0]
        case _:
            return None


def sometimes_unset(asked: Asked) -> bool | None:
    """Make a note of what one branch sets and another does not.

    Where a condition or an exit between the branch that sets a name and its use may know better, nothing is said.
    """
    names = _QUOTED.findall(asked.diagnostic.text)
    function = next((one for one in asked.around if isinstance(one, DefNode)), None)
    if not names or function is None:
        return None
    depth = asked.around.index(function)
    if any(isinstance(one, _BLOCKS) for one in asked.around[:depth]):
        return None
    line, asked_for, setting = asked.diagnostic.line, set[str](), 0
    for node in every(function):
        if isinstance(node, ast.If) and node.lineno < line and names[0] in _stored(node):
            asked_for |= _named(node.test)
            setting = max(setting, node.end_lineno or 0)
    if not setting:
        return None  # a loop or a try: whether it ran, nobody knows
    knows = any(
        setting < node.lineno < line
        and any(isinstance(inner, _EXITS) for inner in every(node))
        and asked_for & _named(node)
        for node in function.body
    )
    return None if knows else False


def _stored(node: ast.AST) -> set[str]:
    names = (n for n in every(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {name.id for name in names}


def _named(node: ast.AST) -> set[str]:
    names = (getattr(inner, "id", getattr(inner, "attr", None)) for inner in every(node))
    return {name for name in names if name is not None}
