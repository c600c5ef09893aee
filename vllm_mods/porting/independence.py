"""Whether the order of two groups of statements could matter, and what a new way out leaves out. Pure."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from vllm_mods.base import line_diff
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.formats import syntax_tree
from vllm_mods.placing.scopes import read_scopes

Place = tuple[str, ...]
"""What can be bound: ``("self", "a")``, ``("x", "'key'")``; ``*`` is any."""

_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_LEAVES = (*_EXITS, ast.Yield, ast.YieldFrom, ast.Await)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_NAMED = (*_SCOPES, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)
_OWN = {("self",), ("cls",)}
_QUIET = {"logger", "logging", "warnings", "print", "super()"}
"""Roots of calls that change nothing that a neighbour could see."""
_Exit = tuple[ast.stmt, list[ast.stmt]]
"""A statement that leaves a function or a loop, and what then does not run."""


def holds(first: Sequence[ast.stmt], second: Sequence[ast.stmt]) -> bool:
    """Return True if the first statements may go before the second, which were written without them.

    Neither binds, nor changes by a call made for that, what the other reads; both bind one thing only
    where the first leaves the function after that; the second cannot leave it.
    """
    if any(isinstance(node, _LEAVES) for node in _walk(second)):
        return False
    if _changes(first, second) or _changes(second, first):
        return False
    stays = list(_bound(_walk(first, leaving=False)))
    return not any(_meet(one, other) for one in stays for other in _bound(_walk(second)))


def lacks(
    gone: Sequence[ast.stmt], instead: Sequence[ast.stmt], new: ast.stmt, old: ast.stmt | None
) -> bool:
    """Return True if ``new`` reads, and ``old`` did not, a name that the ``gone`` statements bound and ``instead`` do not."""
    lost = set(_bound(_walk(gone))) - set(_bound(_walk(instead)))
    reads = set(_read([new])) - set(_read([old] if old is not None else []))
    return any(_meet(one, other) for one in lost for other in reads)


def skipped(base: bytes, ours: bytes, theirs: bytes, merged: bytes) -> Iterator[Finding]:
    """Find where the mod's early exit leaves a function before code that the target has added since the base.

    Only effects that outlive the function count: an attribute, an element, a global, a call made for its effect;
    in a loop, a name too.
    """
    scopes = list(_exits_of(theirs, merged))
    meant = {scope: exits for scope, exits, _ in _exits_of(base, ours)} if scopes else {}
    for scope, exits, mine in scopes:
        known = meant.get(scope, [])
        for n, (leaf, rest) in enumerate(exits):
            old = _effects(known[n][1]) if len(known) == len(exits) else set[Place]()
            undone = _effects(rest) - old - mine
            lasting = {place for place in undone if len(place) > 1 or place[0].endswith("()")}
            lost = lasting if isinstance(leaf, ast.Return) else undone
            if lost:
                names = ", ".join(sorted(".".join(place) for place in lost))
                message = f"line {leaf.lineno}, which the mod adds, skips the target's new code, which sets or calls {names}"
                yield Finding(FindingCode.SKIPS, message, scope=scope)


def _exits_of(before: bytes, after: bytes) -> Iterator[tuple[str, list[_Exit], set[Place]]]:
    """Yield the functions with ways out that another text of the file had not got, these, and what else is new there."""
    texts = [line_diff.split(one) for one in (before, after)]
    added = {n + 1 for _, _, k, m in line_diff.changes(*texts) for n in range(k, m)}
    module = syntax_tree.module(after)
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    for node in () if module is None else ast.walk(module):
        if isinstance(node, functions) and (ways := list(_exits(node.body, added, (), ()))):
            own = [one for one in _walk(node.body) if getattr(one, "lineno", 0) in added]
            yield read_scopes(after).at(node.lineno), ways, _effects(own)


def _effects(nodes: Sequence[ast.AST]) -> set[Place]:
    """Return what is bound, and by ``name()`` the calls made for their effect."""
    walked = list(_walk(nodes))
    calls = {(f"{'.'.join(called)}()",) for called, _ in _called(walked)}
    scopes = (one for one in walked if isinstance(one, ast.Global | ast.Nonlocal))
    shared = {name for one in scopes for name in one.names}
    bound = {(*one, "global") if one[0] in shared else one for one in _bound(walked)}
    return bound | calls


def _exits(
    body: Sequence[ast.stmt],
    lines: set[int],
    after: Sequence[ast.stmt],
    in_loop: Sequence[ast.stmt],
) -> Iterator[_Exit]:
    """Yield what leaves a function or a loop on some lines, with what then does not run."""
    for n, node in enumerate(body):
        rest = [*body[n + 1 :], *after]
        inside = [*body[n + 1 :], *in_loop]
        if isinstance(node, _EXITS) and node.lineno in lines:
            yield node, inside if isinstance(node, ast.Break | ast.Continue) else rest
        if isinstance(node, _SCOPES):
            continue
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            inside = []
        for suite in syntax_tree.suites(node):
            yield from _exits(suite, lines, rest, inside)


def _walk(nodes: Sequence[ast.AST], *, leaving: bool = True) -> Iterator[ast.AST]:
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
                below = [one for one in inner if isinstance(one, ast.AST)]
                yield from _walk(below, leaving=leaving)


def _meet(place: Place, other: Place) -> bool:
    """Tell whether two places may be the same, or one of them in the other."""
    return all(a == b or "*" in {a, b} for a, b in zip(place, other, strict=False))


def _place(node: ast.AST) -> Place:
    """Return the place that an expression names; its text, if it names none."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (*_place(node.value), node.attr)
    if isinstance(node, ast.Subscript):
        key = node.slice
        known = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return (*_place(node.value), ast.unparse(key) if known else "*")
    return (ast.unparse(node),)


def _bound(nodes: Iterable[ast.AST]) -> Iterator[Place]:
    for node in nodes:
        names: Iterable[str | None] = ()
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                yield _place(node)
        elif isinstance(node, ast.alias):
            names = [(node.asname or node.name).split(".")[0]]
        elif isinstance(node, ast.MatchMapping):
            names = [node.rest]
        elif isinstance(node, ast.Global | ast.Nonlocal):
            names = node.names
        elif isinstance(node, _NAMED):
            outer = (one for one in ast.walk(node) if isinstance(one, ast.Global | ast.Nonlocal))
            names = [getattr(node, "name", None), *(name for one in outer for name in one.names)]
        yield from ((name,) for name in names if name)


def _called(nodes: Iterable[ast.AST]) -> Iterator[tuple[Place, ast.Call]]:
    """Yield the calls whose value nobody wants: they are made for what they change."""
    for node in nodes:
        call = node.value if isinstance(node, ast.Expr) else None
        call = call.value if isinstance(call, ast.Await) else call
        if isinstance(call, ast.Call):
            called = _place(call.func)
            if called[0] not in _QUIET:
                yield called, call


def _changes(first: Sequence[ast.stmt], second: Sequence[ast.stmt]) -> bool:
    """Tell whether one group may change what another reads."""
    walked = list(_walk(first))
    effects: list[tuple[Place, Place]] = [(place, ()) for place in _bound(walked)]
    for called, call in _called(walked):
        given = [*call.args, *(one.value for one in call.keywords)]
        named = (_place(one) for one in given if isinstance(one, ast.Name | ast.Attribute))
        places = [called[:-1], *named]
        effects += [(place, called) for place in places if place and place not in _OWN]
    reads = set(_read(second))
    pairs = ((place, read) for place, called in effects for read in reads if read != called)
    return any(_meet(place, read) for place, read in pairs if not (read in _OWN and len(place) > 1))


def _read(nodes: Iterable[ast.AST]) -> Iterator[Place]:
    """Yield what is read, in functions and classes too."""
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            yield _place(node.target)
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            yield from _read(ast.iter_child_nodes(node))
            continue
        if isinstance(node.ctx, ast.Load):
            yield _place(node)
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute | ast.Subscript):
            if isinstance(inner, ast.Subscript):
                yield from _read([inner.slice])
            inner = inner.value
        if not isinstance(inner, ast.Name):
            yield from _read([inner])
