"""What a patch adds although its scope already holds it: statements, definitions, routes, registrations, entries of tables."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.lines import rows
from vllm_mods.fit.problems import Problem, Problems
from vllm_mods.fit.signatures import ScopeNode, decorator_name, every
from vllm_mods.fit.walk import walk
from vllm_mods.formats import syntax_tree

_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith)
_NOTED = (*_COMPOUND, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
# Of FastAPI, argparse, and vLLM's registries of models, parsers and operators.
_REGISTERS = re.compile(
    r"get|post|put|patch|delete|head|options|websocket|route|add_api_route|add_argument|(?:lazy_)?register(?:_\w+)?"
)
_TAKEN = "taken: "
# How many lines apart two equal statements are "nearby".
_NEAR = 12


def duplicate_problems(path: str, tree: ast.Module, lines: frozenset[int]) -> Problems:
    """Compare each added statement with its siblings that were there before."""
    yield from _siblings(path, "", tree.body, lines)
    for node, scope in walk(tree, lines):
        inside = f"{scope.name}.{node.name}" if isinstance(node, ScopeNode) else scope.name
        if isinstance(node, ast.stmt):
            for body in syntax_tree.suites(node):
                yield from _siblings(path, inside.lstrip("."), body, lines)
        elif isinstance(node, ast.Dict):
            yield from _entries(path, inside, node, lines)


def _siblings(path: str, scope: str, body: list[ast.stmt], lines: frozenset[int]) -> Problems:
    # Of a definition the name is enough: beside an equal one, a diff gives the head of one and the body of the other.
    ends = {n: isinstance(n, ScopeNode) or rows(n)[-1] in lines for n in body if n.lineno in lines}
    added = [node for node, is_whole in ends.items() if is_whole]
    alike: dict[str, list[ast.stmt]] = defaultdict(list)
    for node in body if added else ():
        for key in () if ends.get(node) else _keys(node):
            alike[key].append(node)
    for node in added:
        keys = [*_keys(node)]
        for key, other in [(k, o) for k in keys for o in alike[k]]:
            if level := _same(key, node, other, body):
                text = ast.unparse(node).partition("\n")[0]
                shown = text if len(text) <= 60 else f"{text[:57]}..."
                where = f"{scope or 'the module'} already has at line {other.lineno}"
                message, same = f"the patch adds `{shown}`, which {where}", (scope, text)
                place = path, node.lineno, scope
                yield Problem(FindingCode.FIT_DUPLICATE, *place, message, same, text[:20], level)
                break
        # What the patch adds twice counts as well, where it is a definition.
        for key in keys:
            if isinstance(node, ScopeNode) or key.startswith(_TAKEN):
                alike[key].append(node)


def _entries(path: str, scope: str, table: ast.Dict, lines: frozenset[int]) -> Problems:
    """Find keys that a patch adds to a dictionary which has them: the later entry wins without a word."""
    known: dict[object, int] = {}
    for key in table.keys:
        if isinstance(key, ast.Constant):
            line = known.setdefault((type(key.value), key.value), key.lineno)
            if line != key.lineno and not lines.isdisjoint({key.lineno, line}):
                text = ast.unparse(key)
                message = f"the patch adds the key {text}, which the same table already has at line {line}"
                place, same = (path, key.lineno, scope), (scope, text)
                yield Problem(FindingCode.FIT_DUPLICATE, *place, message, same, text[:20])


def _keys(node: ast.stmt) -> Iterator[str]:
    """Yield what a statement shares with its like (a definition's name, else all text), and what only one can have: a route, or a name with its registry."""
    yield node.name if isinstance(node, ScopeNode) else ast.dump(node)
    calls = [node.value] if isinstance(node, ast.Expr) else getattr(node, "decorator_list", [])
    for call in calls:
        match call:
            case ast.Call(
                func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]
            ) if _REGISTERS.fullmatch(attr):
                words = (word for word in call.keywords if word.arg in {"methods", "dispatch_key"})
                yield f"{_TAKEN}{ast.dump(call.func)} {name} {[*map(ast.dump, words)]}"


def _same(key: str, node: ast.stmt, other: ast.stmt, body: list[ast.stmt]) -> Level | None:
    """Judge two statements that share a key."""
    if key.startswith(_TAKEN):
        return Level.ERROR
    if isinstance(node, ScopeNode) and isinstance(other, ScopeNode):
        both = node.decorator_list, other.decorator_list
        marks = {decorator_name(one).rpartition(".")[2] for several in both for one in several}
        mine, its = ([*map(ast.dump, several)] for several in both)
        # Overloads, setters and registrations define a name twice on purpose.
        alike = mine == its and marks.isdisjoint(("overload", "register", "dispatch"))
        plain = marks <= {"staticmethod", "classmethod", "property"}
        return Level.ERROR if alike or plain else None
    read = {n.id for n in every(node) if isinstance(n, ast.Name)}
    first, last = sorted((body.index(node), body.index(other)))
    between = (inner for one in body[first + 1 : last] for inner in every(one))
    names = (n for n in between if isinstance(n, ast.Name) and n.id in read)
    if any(isinstance(name.ctx, ast.Store) for name in names):
        return None  # the same words of another value
    near = abs(node.lineno - other.lineno) <= _NEAR
    if near and isinstance(node, _COMPOUND):
        return Level.ERROR
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return Level.NOTE if isinstance(node, _NOTED) or (near and is_call) else None
