"""What a patch adds although its scope already holds it: statements, definitions, routes, registrations, entries of tables."""

import ast
import re
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.lines import rows
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.signatures import ScopeNode, decorator_name, every
from vllm_mods.fit.walk import walk
from vllm_mods.formats import syntax_tree

_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith)
# Of FastAPI, argparse, and vLLM's registries of models, parsers and operators.
_REGISTERS = re.compile(
    r"get|post|put|patch|delete|head|options|websocket|route|add_api_route|add_argument|(?:lazy_)?register(?:_\w+)?"
)
_TAKEN = "taken: "
# How many lines apart two equal statements are "nearby".
_NEAR = 12


def duplicate_problems(path: str, tree: ast.Module, lines: frozenset[int]) -> Iterator[Problem]:
    """Compare each added statement with its siblings that were there before."""
    yield from _siblings(path, "", tree.body, lines)
    for node, scope in walk(tree, lines):
        inside = f"{scope.name}.{node.name}" if isinstance(node, ScopeNode) else scope.name
        if isinstance(node, ast.stmt):
            for body in syntax_tree.suites(node):
                yield from _siblings(path, inside.lstrip("."), body, lines)
        elif isinstance(node, ast.Dict):
            yield from _entries(path, inside, node, lines)


def _siblings(
    path: str, scope: str, body: list[ast.stmt], lines: frozenset[int]
) -> Iterator[Problem]:
    added = [node for node in body if _is_added(node, lines)]
    if not added:
        return
    alike: dict[str, list[ast.stmt]] = {}
    for node in body:
        is_old = lines.isdisjoint(rows(node))
        if is_old or (isinstance(node, ScopeNode) and node.lineno not in lines):
            for key in _keys(node):
                alike.setdefault(key, []).append(node)
    for node in added:
        pairs = ((other, key) for key in _keys(node) for other in alike.get(key, ()))
        for other, key in pairs:
            level = Level.ERROR if key.startswith(_TAKEN) else _same(node, other)
            if level is not None and not _rebound(node, other, body):
                yield _problem(path, scope, node, other, level)
                break
        # What the patch adds twice counts as well, where it is a definition.
        for key in _keys(node):
            if isinstance(node, ScopeNode) or key.startswith(_TAKEN):
                alike.setdefault(key, []).append(node)


def _entries(path: str, scope: str, table: ast.Dict, lines: frozenset[int]) -> Iterator[Problem]:
    """Find keys that a patch adds to a dictionary which has them: the later entry wins without a word."""
    keys: dict[object, int] = {}
    for key in table.keys:
        if not isinstance(key, ast.Constant):
            continue
        other = keys.setdefault((type(key.value), key.value), key.lineno)
        if other != key.lineno and not lines.isdisjoint({key.lineno, other}):
            text = ast.unparse(key)
            message = f"the patch adds the key {text}, which the same table already has at line {min(other, key.lineno)}"
            place, same = (path, key.lineno, scope), (scope, text)
            yield Problem(FindingCode.FIT_DUPLICATE, *place, message, same, text[:20])


def _is_added(node: ast.stmt, lines: frozenset[int]) -> bool:
    """Tell whether a patch adds a statement: all of it, or the name of a definition.

    Where a class or function is added beside an equal one, a diff gives the head of one and the body of the other.
    """
    whole = isinstance(node, ScopeNode) or (node.end_lineno or node.lineno) in lines
    return node.lineno in lines and whole


def _keys(node: ast.stmt) -> Iterator[str]:
    """Yield what a statement shares with one that may be the same, and what it takes that only one can have.

    The first is the name of a definition, else all of the text.
    """
    yield node.name if isinstance(node, ScopeNode) else ast.dump(node)
    calls = [one for one in getattr(node, "decorator_list", ()) if isinstance(one, ast.Call)]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        calls = [node.value]
    for call in calls:
        if taken := _taken(call):
            yield taken


def _taken(call: ast.Call) -> str | None:
    """Return the route or the name that a call registers, with what it is registered in; None for another call."""
    match call:
        case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]) if (
            _REGISTERS.fullmatch(attr)
        ):
            words = (word for word in call.keywords if word.arg in {"methods", "dispatch_key"})
            return f"{_TAKEN}{ast.dump(call.func)} {name} {[*map(ast.dump, words)]}"
        case _:
            return None


def _rebound(node: ast.stmt, other: ast.stmt, body: list[ast.stmt]) -> bool:
    """Tell whether a name that the statement reads changes its value between the two."""
    if isinstance(node, ScopeNode):
        return False
    read = {n.id for n in every(node) if isinstance(n, ast.Name)}
    first, last = sorted((body.index(node), body.index(other)))
    return any(
        isinstance(inner, ast.Name) and inner.id in read and isinstance(inner.ctx, ast.Store)
        for between in body[first + 1 : last]
        for inner in every(between)
    )


def _same(node: ast.stmt, other: ast.stmt) -> Level | None:
    """Judge two statements that share their first key."""
    if isinstance(node, ScopeNode) and isinstance(other, ScopeNode):
        decorators = (*node.decorator_list, *other.decorator_list)
        decorated = {decorator_name(one).rpartition(".")[2] for one in decorators}
        if (
            decorated
            and [*map(ast.dump, node.decorator_list)] == [*map(ast.dump, other.decorator_list)]
            and not decorated & {"overload", "register", "dispatch"}
        ):
            return Level.ERROR
        # Overloads, setters and registrations define a name twice on purpose.
        return None if decorated - {"staticmethod", "classmethod", "property"} else Level.ERROR
    near = abs(node.lineno - other.lineno) <= _NEAR
    if isinstance(node, _COMPOUND):
        return Level.ERROR if near else Level.NOTE
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
        return Level.NOTE
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return Level.NOTE if near else None
    return None


def _problem(path: str, scope: str, node: ast.stmt, other: ast.stmt, level: Level) -> Problem:
    text = ast.unparse(node).partition("\n")[0]
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    where = f"{scope or 'the module'} already has at line {other.lineno}"
    message, key = f"the patch adds `{shown}`, which {where}", (scope, text)
    return Problem(
        FindingCode.FIT_DUPLICATE, path, node.lineno, scope, message, key, text[:20], level
    )
