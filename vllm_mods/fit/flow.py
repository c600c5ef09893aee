"""Names of a function that no path to where they are read has bound, or one branch has and another has not.

The second are notes, not errors: a branch may be the only one that is ever taken. Loops count as run,
and nothing is said where a condition or an exit between the branch and the use may know better.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.bodies import own
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.signatures import DefNode, ScopeNode, every, parameters_of

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Assert)
# What is read in these is read later, or not at all.
_LATER = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.IfExp, ast.BoolOp),
    *_COMPREHENSIONS,
)


def flow_problems(path: str, tree: ast.Module, lines: frozenset[int]) -> Iterator[Problem]:
    """Judge every function that has one of some lines."""
    for node, scope in _functions(tree, lines):
        yield from _unbound(path, tree, node, scope)
        yield from _on_one_path(path, node, scope, lines)


def _functions(tree: ast.Module, lines: frozenset[int]) -> Iterator[tuple[DefNode, str]]:
    """Yield every function that has one of some lines, with its dotted name."""
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, scope = stack.pop()
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.stmt) and lines.isdisjoint(rows(child)):
                continue
            if isinstance(child, ScopeNode):
                inner = f"{scope}.{child.name}".lstrip(".")
            if isinstance(child, DefNode):
                yield child, inner
            if not isinstance(child, ast.expr):
                stack.append((child, inner))


def rows(node: ast.stmt) -> range:
    """Return the lines of a statement."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _unbound(path: str, tree: ast.Module, node: DefNode, scope: str) -> Iterator[Problem]:
    inside = [inner for statement in node.body for inner in every(statement)]
    if not _early(inside):
        return
    shared = {n for i in inside if isinstance(i, ast.Global | ast.Nonlocal) for n in i.names}
    flow = _Flow(bound_by(node.body) - shared | _lonely(tree, node, inside))
    flow.block(node.body, {parameter.name for parameter in parameters_of(node.args)})
    for name, line in flow.unbound.items():
        later = flow.later(node, name, line)
        message = f"{name} is read, and nothing has set it by then: {later}"
        key = (scope, name, "unbound")
        yield Problem(FindingCode.FIT_UNDEFINED_NAME, path, line, scope, message, key, token=name)


def _early(inside: list[ast.AST]) -> bool:
    """Tell whether some name is read above all that binds it, deleted, or global: the rest is fine."""
    loads: dict[str, int] = {}
    stores: dict[str, int] = {}
    for node in inside:
        if isinstance(node, ast.Global | ast.Delete):
            return True
        if isinstance(node, ast.Name):
            seen = loads if isinstance(node.ctx, ast.Load) else stores
            seen[node.id] = min(seen.get(node.id, node.lineno), node.lineno)
        elif isinstance(node, ScopeNode | ast.alias | ast.ExceptHandler):
            for name in _binds(node):
                stores[name] = min(stores.get(name, node.lineno), node.lineno)
    return any(name in stores and stores[name] >= line for name, line in loads.items())


def _lonely(tree: ast.Module, node: ast.AST, inside: list[ast.AST]) -> set[str]:
    """Return the globals that this function alone can bind."""
    names = {n for inner in inside if isinstance(inner, ast.Global) for n in inner.names}
    if not names:
        return names
    mine = set(map(id, inside))
    others = [n for n in every(tree) if id(n) not in mine and n is not node]
    held = {n for inner in others for n in _binds(inner)}
    held |= {n for inner in others if isinstance(inner, ast.Global) for n in inner.names}
    dynamic = any(isinstance(i, ast.ImportFrom) and i.names[0].name == "*" for i in others)
    # Somebody else may have set it before a path that only sets it is taken again.
    sets = {
        n
        for inner in inside
        if isinstance(inner, ast.Assign | ast.AnnAssign)
        for n in bound_by([inner])
    }
    return set() if dynamic else names - held - sets


def _binds(node: ast.AST) -> Iterator[str]:
    """Yield what one node binds by itself."""
    match node:
        case ast.Name(ctx=ast.Store() | ast.Del()):
            yield node.id
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.alias():
            yield (node.asname or node.name).partition(".")[0]
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield name
        case _:
            pass


def bound_by(nodes: Iterable[ast.AST]) -> set[str]:
    """Return every name that some nodes bind in their own scope."""
    names: set[str] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        names.update(_binds(node))
        if isinstance(node, _COMPREHENSIONS):
            names |= {n.target.id for n in every(node) if isinstance(n, ast.NamedExpr)}
        elif not isinstance(node, ScopeNode | ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return names


class _Flow:
    """Follows a body with the names that some path has bound; what is doubtful counts as bound."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.unbound: dict[str, int] = {}
        self.deleted: dict[str, int] = {}

    def later(self, node: ast.AST, name: str, line: int) -> str:
        """Say where a name is bound or deleted."""
        if name in self.deleted:
            return f"line {self.deleted[name]} deletes it"
        lines = [n.lineno for n in every(node) if name in _binds(n) and hasattr(n, "lineno")]
        after = min((n for n in lines if n > line), default=0)
        return f"line {after} is the first that does" if after else "no path does"

    def block(self, body: list[ast.stmt], bound: set[str]) -> set[str] | None:
        """Return what is bound after some statements; ``None`` if their end is not reached."""
        state: set[str] | None = set(bound)
        for statement in body:
            if state is None:
                return None
            state = self.statement(statement, state)
        return state

    def statement(  # noqa: C901, PLR0912 - one kind of statement per branch
        self, node: ast.stmt, bound: set[str]
    ) -> set[str] | None:
        match node:
            case ast.Return() | ast.Raise() | ast.Break() | ast.Continue():
                self.read(node, bound)
                return None
            case ast.If():
                self.read(node.test, bound)
                bound = bound | bound_by([node.test])
                ends = [self.block(node.body, bound), self.block(node.orelse, bound)]
                reached = [end for end in ends if end is not None]
                return set().union(*reached) if reached else None
            case ast.For() | ast.AsyncFor() | ast.While():
                self.read(node.test if isinstance(node, ast.While) else node.iter, bound)
                bound = bound | bound_by([node])
                self.block(node.body, bound)
                self.block(node.orelse, bound)
            case ast.Try() | ast.With() | ast.AsyncWith() | ast.Match():
                self.compound(node, bound)
                bound = bound | bound_by([node])
            case ast.Delete():
                self.read(node, bound)
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        bound.discard(target.id)
                        self.deleted[target.id] = node.lineno
            case ast.Assign() | ast.AnnAssign():
                if node.value is not None:
                    self.read(node.value, bound)
                    bound |= bound_by([node.value])
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.read(target, bound)
                    bound |= bound_by([target]) if node.value is not None else set()
            case ast.AugAssign():
                self.read(node.value, bound)
                self.load(node.target, bound)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bound.add(node.name)
                self.names -= {
                    n for i in every(node) if isinstance(i, ast.Nonlocal) for n in i.names
                }
            case _:
                self.read(node, bound)
                bound |= bound_by([node])
        return bound

    def compound(
        self, node: ast.Try | ast.With | ast.AsyncWith | ast.Match, bound: set[str]
    ) -> None:
        """Follow what may be left anywhere inside."""
        every_name = bound | bound_by([node])
        if isinstance(node, ast.Try):
            self.block(node.body, bound)
            for block in (*(h.body for h in node.handlers), node.orelse, node.finalbody):
                self.block(block, every_name)
        elif isinstance(node, ast.Match):
            self.read(node.subject, bound)
            for case in node.cases:
                self.block(case.body, bound | bound_by([case.pattern, case.guard or case.pattern]))
        else:
            for item in node.items:
                self.read(item.context_expr, bound)
                bound = bound | bound_by([item])
            self.block(node.body, bound)

    def read(self, node: ast.AST, bound: set[str]) -> None:
        """Look at every name that evaluating an expression reads at once."""
        held = bound | bound_by([node])
        stack: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset())]
        while stack:
            inner, hidden = stack.pop()
            if isinstance(inner, ScopeNode | ast.Lambda):
                continue
            if isinstance(inner, _COMPREHENSIONS):
                hidden |= {n for g in inner.generators for n in bound_by([g.target])}
            if isinstance(inner, ast.Name) and inner.id not in hidden:
                if isinstance(inner.ctx, ast.Load):
                    self.load(inner, held)
                elif isinstance(inner.ctx, ast.Del):
                    self.load(inner, bound)
            stack.extend((child, hidden) for child in ast.iter_child_nodes(inner))

    def load(self, node: ast.AST, bound: set[str]) -> None:
        """Record a name that nothing has bound."""
        if isinstance(node, ast.Name) and node.id in self.names and node.id not in bound:
            self.unbound.setdefault(node.id, node.lineno)


# --- set on one path


def _on_one_path(path: str, node: DefNode, scope: str, lines: frozenset[int]) -> Iterator[Problem]:
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
                yield Problem(
                    FindingCode.FIT_UNDEFINED_NAME, path, read, scope, text, key, name, Level.NOTE
                )


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
    names: set[str] = set()
    stack: list[ast.AST] = list(getattr(node, "body", ()))
    while stack:
        inner = stack.pop()
        if isinstance(inner, ast.stmt):
            if inner.lineno >= line:
                continue
            loops = isinstance(inner, ast.For | ast.AsyncFor | ast.While)
            if loops or line > (inner.end_lineno or 0):
                names |= bound_by([inner])
                continue
        for child in ast.iter_child_nodes(inner):
            if isinstance(child, ast.expr | ast.withitem):
                names |= bound_by([child])
            else:
                stack.append(child)
    return names


def _words(node: ast.AST) -> set[str]:
    """Return the names and attributes that stand in a piece of code."""
    names = (getattr(inner, "id", getattr(inner, "attr", None)) for inner in every(node))
    return {name for name in names if name is not None}


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
