"""Which definitions of a suite are bound to their names in the end. Pure.

A definition is dead only where nothing could have kept it: a decorator may have put it in a
table, and whatever read the name before it was bound again may have taken it along.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# They give back what they were given, or something that nobody else holds.
_KEEPS_NOTHING = frozenset(
    (
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager"),
        *("dataclass", "final", "inference_mode", "lru_cache", "no_grad", "override", "property"),
        *("staticmethod", "total_ordering", "wraps"),
    )
)


class Fate(NamedTuple):
    """What becomes of a definition in the scope that it stands in."""

    live: bool = True
    conditional: bool = False


class _Bound(NamedTuple):
    """The names that statements bind whenever they run, and those that they may bind."""

    sure: frozenset[str] = frozenset()
    maybe: frozenset[str] = frozenset()


_NOTHING = _Bound()
_STAR = "*"


def fates(body: Sequence[ast.stmt]) -> dict[Definition, Fate]:
    """Return what becomes of every definition of a scope, those in branches included."""
    fate_of: dict[Definition, Fate] = {}
    _suite(body, fate_of, inside=False)
    return fate_of


def suites(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the suites of a compound statement that is no definition."""
    for name in ("body", "orelse", "finalbody"):
        if suite := getattr(node, name, None):
            yield suite
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _suite(body: Sequence[ast.stmt], fate_of: dict[Definition, Fate], *, inside: bool) -> _Bound:
    sure: set[str] = set()
    maybe: set[str] = set()
    # Where in this suite a name has definitions, in branches or not.
    earlier: dict[str, list[tuple[int, Definition]]] = {}
    for number, node in enumerate(body):
        inner: dict[Definition, Fate] = {}
        bound = _bound(node, inner, inside=inside)
        for name in (bound.sure | bound.maybe) & earlier.keys():
            for at, prior in earlier[name]:
                fate = fate_of[prior]
                if name not in bound.sure:
                    fate_of[prior] = fate._replace(conditional=True)
                elif not _kept(prior, body[at + 1 : number + 1]):
                    fate_of[prior] = fate._replace(live=False)
        if _STAR in bound.maybe:
            fate_of.update((one, fate._replace(conditional=True)) for one, fate in fate_of.items())
        fate_of |= inner
        for definition in inner:
            earlier.setdefault(definition.name, []).append((number, definition))
        sure |= bound.sure
        maybe |= bound.maybe
    return _Bound(frozenset(sure), frozenset(maybe))


def _bound(node: ast.stmt, fate_of: dict[Definition, Fate], *, inside: bool) -> _Bound:  # noqa: PLR0911  (one kind of statement per branch)
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            fate_of[node] = Fate(conditional=inside)
            return _Bound(frozenset((node.name,)))
        case ast.Import() | ast.ImportFrom():
            names = frozenset(one.asname or one.name.partition(".")[0] for one in node.names)
            return _Bound(names - {_STAR}, names & {_STAR})
        case ast.Assign():
            return _Bound(_names(node.targets))
        case ast.AugAssign() | ast.AnnAssign():
            return _NOTHING if node.value is None else _Bound(_names([node.target]))
        case ast.Delete():
            return _Bound(_names(node.targets))
        case ast.If():
            return _either(_branch(node.body, fate_of), _branch(node.orelse, fate_of))
        case ast.Try() | ast.TryStar():
            return _try(node, fate_of)
        case ast.With() | ast.AsyncWith():
            targets = _names(one.optional_vars for one in node.items if one.optional_vars)
            # It may swallow an error: ``with suppress(ImportError)``.
            return _Bound(targets, _all(_branch(node.body, fate_of)))
        case ast.For() | ast.AsyncFor() | ast.While() | ast.Match():
            inner = [_all(_branch(suite, fate_of)) for suite in suites(node)]
            over = [node.target] if isinstance(node, ast.For | ast.AsyncFor) else []
            return _Bound(maybe=_names(over).union(*inner))
        case _:
            alias = getattr(node, "name", None)  # ``type X = …``, of Python 3.12
            return _Bound(_names([alias])) if isinstance(alias, ast.Name) else _NOTHING


def _branch(body: Sequence[ast.stmt], fate_of: dict[Definition, Fate]) -> _Bound:
    return _suite(body, fate_of, inside=True)


def _either(first: _Bound, *others: _Bound) -> _Bound:
    sure = first.sure.intersection(*(other.sure for other in others))
    return _Bound(sure, _all(first).union(*map(_all, others)) - sure)


def _all(bound: _Bound) -> frozenset[str]:
    return bound.sure | bound.maybe


def _try(node: ast.Try | ast.TryStar, fate_of: dict[Definition, Fate]) -> _Bound:
    body = _branch(node.body, fate_of)
    orelse = _branch(node.orelse, fate_of)
    whole = _Bound(body.sure | orelse.sure, body.maybe | orelse.maybe)
    caught = _either(whole, *(_branch(handler.body, fate_of) for handler in node.handlers))
    at_last = _suite(node.finalbody, fate_of, inside=True)
    return _Bound(caught.sure | at_last.sure, caught.maybe | at_last.maybe)


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
