"""Which definitions of a suite are bound to their names in the end. Pure.

A definition is dead only where nothing could have kept it: a decorator may have put it in a
table, and whatever read the name before it was bound again may have taken it along.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from vllm_mods.formats.syntax_tree import suites

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# They give back what they were given, or something that nobody else holds.
_KEEPS_NOTHING = frozenset(
    (
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager"),
        *("dataclass", "final", "inference_mode", "lru_cache", "no_grad", "override", "property"),
        *("staticmethod", "total_ordering", "wraps"),
    )
)


def dead_definitions(body: Sequence[ast.stmt]) -> frozenset[Definition]:
    """Return the definitions of a scope, those in branches included, that nothing can reach in the end."""
    dead: set[Definition] = set()
    _suite(body, [], dead)
    return frozenset(dead)


def _suite(
    body: Sequence[ast.stmt], definitions: list[Definition], dead: set[Definition]
) -> frozenset[str]:
    """Return the names that statements bind whenever they run; add their definitions to those given."""
    sure: frozenset[str] = frozenset()
    # Where in this suite a name has definitions, in branches or not.
    earlier: dict[str, list[tuple[int, Definition]]] = {}
    for number, node in enumerate(body):
        inner: list[Definition] = []
        bound = _bound(node, inner, dead)
        for name in bound & earlier.keys():
            for at, prior in earlier[name]:
                if not _kept(prior, body[at + 1 : number + 1]):
                    dead.add(prior)
        for definition in inner:
            earlier.setdefault(definition.name, []).append((number, definition))
        definitions += inner
        sure |= bound
    return sure


def _bound(  # noqa: PLR0911  (one kind of statement per branch)
    node: ast.stmt, definitions: list[Definition], dead: set[Definition]
) -> frozenset[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            definitions.append(node)
            return frozenset((node.name,))
        case ast.Import() | ast.ImportFrom():
            names = (one.asname or one.name.partition(".")[0] for one in node.names)
            return frozenset(names) - {"*"}
        case ast.Assign() | ast.Delete():
            return _names(node.targets)
        case ast.AugAssign() | ast.AnnAssign():
            return _names([] if node.value is None else [node.target])
        case ast.If():
            return _suite(node.body, definitions, dead) & _suite(node.orelse, definitions, dead)
        case ast.Try() | ast.TryStar():
            whole = _suite(node.body, definitions, dead) | _suite(node.orelse, definitions, dead)
            caught = [_suite(handler.body, definitions, dead) for handler in node.handlers]
            return whole.intersection(*caught) | _suite(node.finalbody, definitions, dead)
        case _:
            # It may run not at all, or swallow an error: ``with suppress(ImportError)``.
            for suite in suites(node):
                _suite(suite, definitions, dead)
            targets = [one.optional_vars for one in getattr(node, "items", ())]
            # ``type X = …``, of Python 3.12
            return _names(filter(None, (*targets, getattr(node, "name", None))))


def _names(targets: Iterable[ast.expr]) -> frozenset[str]:
    names = set()
    stack = list(targets)
    while stack:
        target = stack.pop()
        if isinstance(target, ast.Name):
            names.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            stack += target.elts
        elif isinstance(target, ast.Starred):
            stack.append(target.value)
    return frozenset(names)


def _kept(definition: Definition, later: Sequence[ast.stmt]) -> bool:
    """Tell whether something may hold a definition whose name the last statement binds again."""
    if any(_last_word(one) not in _KEEPS_NOTHING for one in definition.decorator_list):
        return True  # ``overload`` among them: a stub is no dead definition
    return any(_reads(node, definition.name) for node in later)


def _last_word(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""


def _reads(node: ast.AST, name: str) -> bool:
    """Tell whether a name is read when a statement runs: not in the bodies of functions."""
    stack: list[ast.AST] = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.AugAssign) and name in _names([node.target]):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stack += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif not isinstance(node, ast.Lambda):
            stack += ast.iter_child_nodes(node)
    return False
