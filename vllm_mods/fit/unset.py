"""Names that nothing has set where they are read, by the type checker's words: for certain, or on one path."""

import ast
import re

from vllm_mods.fit.asked import Asked
from vllm_mods.fit.signatures import DefNode, bindings, every

_QUOTED = re.compile(r"`(\w+)`")
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match, ast.IfExp, ast.BoolOp)
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)


def unset(asked: Asked) -> bool | None:
    """Believe what is not set yet in its function, and what our own reading does not find in the module either."""
    names = _QUOTED.findall(asked.diagnostic.text)
    inside = [one for one in asked.around if isinstance(one, DefNode)]
    if not names:
        return None
    if asked.diagnostic.rule == "unresolved-global":
        # a plain assignment makes the global
        more = [n.target for n in every(asked.tree) if isinstance(n, ast.AugAssign)]
        stored = [n for n in every(asked.tree) if isinstance(n, ast.Name) and n.id == names[0]]
        made = (n for n in stored if isinstance(n.ctx, ast.Store) and n not in more)
        return None if any(made) else True
    bound = (
        (name for statement in inside[0].body for name, _ in bindings(statement)) if inside else ()
    )
    answer = asked.world.lookup(asked.diagnostic.path, names[0])
    return names[0] in bound or answer.exists is False or None


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
