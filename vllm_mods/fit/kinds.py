"""Whether what code uses is of the kind that the use asks for."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterable, Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.attributes import missing, narrowed
from vllm_mods.fit.bodies import arities, definition, is_generator
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Misuse, Misuses, Problem, at_site, lasting
from vllm_mods.fit.search import class_named, is_mentioned, overriding, subclasses
from vllm_mods.fit.shapes import Function
from vllm_mods.fit.signatures import call_text, is_property, opaque_decorator
from vllm_mods.fit.symbols import Symbol, Thing, builtin
from vllm_mods.fit.walk import CodeScope, CodeSite
from vllm_mods.fit.world import World

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTION = frozenset(dir(lambda: 0)) - {"__lt__"}
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def kind_problems(inference: Inference, sites: Iterable[CodeSite]) -> Iterator[Problem]:
    """Judge every use among some sites."""
    for site in sites:
        for misuse in _wrong(inference, site.node, site.scope):
            key = site.scope.name, lasting(misuse.text)
            yield at_site(inference.path, site, FindingCode.FIT_KIND, misuse, *key)


def _wrong(  # noqa: C901, PLR0912 - one kind of use per branch
    inference: Inference, node: ast.AST, scope: CodeScope
) -> Misuses:
    match node:
        case ast.With() | ast.AsyncWith():
            wanted = "__enter__" if isinstance(node, ast.With) else "__aenter__"
            for item in node.items:
                yield from _lacks(inference, item.context_expr, scope, wanted, "entered by with")
                yield from _generator(inference, item.context_expr, scope)
        case ast.For():
            yield from _lacks(inference, node.iter, scope, "__iter__", "iterated over")
        case ast.Subscript(ctx=ast.Load()):
            yield from _lacks(inference, node.value, scope, "__getitem__", "subscripted")
        case ast.Attribute(ctx=ast.Load()):
            yield from _lacks(inference, node.value, scope, node.attr, "read from")
        case ast.Attribute(ctx=ast.Store()):
            yield from _frozen(inference, node, scope)
        case ast.AugAssign(target=ast.Attribute() as target):
            yield from _frozen(inference, target, scope)
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            for kind in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
                yield from _no_class(inference, kind, scope, "isinstance")
        case ast.Call():
            yield from _lacks(inference, node.func, scope, "__call__", "called")
            yield from _abstract(inference, node, scope)
        case ast.ClassDef():
            for base in node.bases:
                yield from _no_class(inference, base, scope, "a base class")
            yield from _incomplete(inference, node, scope)
        case ast.Expr(value=ast.Call() as call):
            if _kinds(inference, call, scope) == {"coroutine"}:
                yield Misuse(
                    f"{call_text(call)}() makes a coroutine, and nothing awaits it", _token(call)
                )
        case ast.Assign(targets=[ast.Tuple() as target], value=ast.Call() | ast.Await()):
            yield from _unpacked(inference, target, node.value, scope)
        case ast.BinOp():
            yield from _operands(inference, node, scope)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.UnaryOp(op=ast.Not(), operand=test):
            yield from _lacks(inference, test, scope, "__bool__", "asked for its truth")
        case ast.BoolOp(values=values):
            for value in values:
                yield from _lacks(inference, value, scope, "__bool__", "asked for its truth")
        case ast.Compare(ops=[op]) if isinstance(op, _ORDERS):
            for side in (node.left, *node.comparators):
                yield from _lacks(inference, side, scope, "__lt__", "compared")


def _kinds(inference: Inference, node: ast.expr, scope: CodeScope) -> set[str]:
    return {thing.kind for thing in inference.infer(node, scope)}


def _token(node: ast.expr) -> str:
    func = node.func if isinstance(node, ast.Call) else node
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _lacks(
    inference: Inference, node: ast.expr, scope: CodeScope, wanted: str, used: str
) -> Misuses:
    """Say that something is used in a way that it does not take, whatever it may be."""
    things = inference.infer(node, scope)
    answers = [_lack(inference.world, thing, wanted, node) for thing in things]
    if answers and None not in answers and not narrowed(scope, node):
        yield Misuse(f"{ast.unparse(node)[:60]} is {used}, and {answers[0]}", _token(node))


def _lack(  # noqa: PLR0911 - an answer per kind of thing
    world: World, thing: Thing, wanted: str, node: ast.expr
) -> str | None:
    plain, special = builtin(thing), wanted.startswith("__")
    method = thing.kind == "function" and thing.bound
    if wanted == "__bool__" and not method and thing.kind != "coroutine":
        return None
    if plain and special:
        return None if _has(plain, wanted) else f"it is a {plain.__name__}"
    if thing.kind == "coroutine" and wanted not in {"send", "throw", "close"}:
        where = f"{thing.symbol.where} is `async def {thing.function.name}`"
        return f"it is a coroutine that nothing awaits: {where}"
    if thing.kind == "function" and wanted != "__call__":
        return _of_function(world, thing, wanted, node)
    if thing.kind == "instance" and special and wanted != "__lt__":
        line = lineage(world, thing.symbol)
        names, why = attributes(world, line)
        known = {wanted, "__getitem__"} if wanted == "__iter__" else {wanted}
        if why or known & names or (line.torch and wanted == "__call__"):
            return None
        answer = missing(world, thing, wanted) if _plain(world, thing) else None
        if answer is not None and not answer.why:
            return f"it is a {thing.symbol.text}, which has no {wanted}"
    return None


def _has(kind: type, wanted: str) -> bool:
    # Not ``hasattr``: a type itself can be called.
    return any(wanted in vars(one) for one in kind.__mro__)


def _plain(world: World, thing: Thing) -> bool:
    """Tell whether a class, and those below it, are ones whose special methods are all in the tree."""
    return not any(
        lineage(world, one).outside
        for one in (thing.symbol, *(() if thing.exact else subclasses(world, thing.symbol)))
    )


def _of_function(world: World, thing: Thing, wanted: str, node: ast.expr) -> str | None:
    """Say what a function is where something else is asked for."""
    function = thing.function
    if opaque_decorator(function) or is_property(function) or isinstance(node, ast.Call):
        return None
    if function.marks & {"lru_cache", "cache", "deprecated"}:
        return None
    if wanted in _FUNCTION or (wanted == "__lt__" and not thing.bound):
        return None
    if not wanted.startswith("__"):
        setter = re.compile(rb"\.%b\s*=|[\"']%b[\"']" % (wanted.encode(), wanted.encode()))
        if is_mentioned(world, wanted, setter, (thing.symbol.path,)):
            return None
    kind = "method" if thing.owner else "function"
    what = f"{function.name}{function.text()} of {thing.symbol.where}"
    return f"it is the {kind} {what}, not what calling it gives"


def _generator(inference: Inference, node: ast.expr, scope: CodeScope) -> Misuses:
    if not isinstance(node, ast.Call):
        return
    things = inference.infer(node.func, scope)
    symbol = things[0].symbol if len(things) == 1 else Symbol()
    function = symbol.binding
    if not isinstance(function, Function) or function.decorators:
        return
    if is_generator(definition(inference.world, symbol.path, function)):
        text = f"{call_text(node)}() is entered by with, and {symbol.where} is a generator"
        yield Misuse(f"{text} without @contextmanager", _token(node))


def _no_class(inference: Inference, node: ast.expr, scope: CodeScope, used: str) -> Misuses:
    things = inference.infer(node, scope)
    if things and all(thing.kind == "function" for thing in things):
        text = f"{ast.unparse(node)} is used as {used}"
        yield Misuse(f"{text}, and {things[0].symbol.where} defines a function", _token(node))


def _frozen(inference: Inference, node: ast.Attribute, scope: CodeScope) -> Misuses:
    things, world = inference.infer(node.value, scope), inference.world
    if things and all(t.kind == "instance" and _is_frozen(world, t.symbol) for t in things):
        text = f"{ast.unparse(node)} is set, and {things[0].symbol.text} is frozen"
        yield Misuse(text, node.attr)


def _is_frozen(world: World, symbol: Symbol) -> bool:
    line = lineage(world, symbol)
    return not any("__setattr__" in one.cls.methods for one in line.classes) and any(
        name.rpartition(".")[2] == "dataclass" and "frozen=True" in keywords
        for one in line.classes
        for name, keywords in one.cls.decorators
    )


def _unpacked(
    inference: Inference, target: ast.Tuple, value: ast.expr, scope: CodeScope
) -> Misuses:
    yield from _lacks(inference, value, scope, "__iter__", "unpacked")
    call = value.value if isinstance(value, ast.Await) else value
    if not isinstance(call, ast.Call) or any(isinstance(e, ast.Starred) for e in target.elts):
        return
    world, name, where = inference.world, call_text(call), ""
    lengths: set[int | None] = set()
    for thing in inference.infer(call.func, scope):
        function = thing.symbol.binding
        if (
            not isinstance(function, Function)
            or opaque_decorator(function)
            or "contextmanager" in function.marks
            or function.asynchronous is not isinstance(value, ast.Await)
            or overriding(world, thing)
        ):
            return
        lengths |= arities(definition(world, thing.symbol.path, function)) or {None}
        where = thing.symbol.where
    if lengths and None not in lengths and len(target.elts) not in lengths:
        gives = " or ".join(str(length) for length in sorted(lengths, key=str))
        text = f"{name}() is unpacked into {len(target.elts)}"
        yield Misuse(f"{text}, and {where} returns {gives}", _token(call))


def _operands(inference: Inference, node: ast.BinOp, scope: CodeScope) -> Misuses:
    operate = _OPERATORS.get(type(node.op))
    if operate is None:
        return
    kinds = []
    for side in (node.left, node.right):
        plain = {builtin(thing) for thing in inference.infer(side, scope)}
        kind = plain.pop() if len(plain) == 1 else None
        if kind is None:
            yield from _lacks(inference, side, scope, "__lt__", "an operand")
            return
        kinds.append(kind)
    try:
        operate(kinds[0](), kinds[1]())
    except TypeError:
        names = " and a ".join(kind.__name__ for kind in kinds)
        yield Misuse(f"`{ast.unparse(node)[:60]}` puts a {names} together", "")
    except ArithmeticError:
        return


def abstract_methods(world: World, symbol: Symbol) -> dict[str, Symbol]:
    """Return the abstract methods that a class leaves open, where Python holds it to them."""
    line = lineage(world, symbol)
    metas = {value for one in line.classes for key, value in one.cls.keywords if key == "metaclass"}
    if line.outside or ("ABC" not in line.bases and metas.isdisjoint(("ABCMeta", "abc.ABCMeta"))):
        return {}
    open_: dict[str, Symbol] = {}
    for owner in reversed(line.classes):
        for name in owner.cls.attributes:
            open_.pop(name, None)
            if _is_abstract(owner, name):
                open_[name] = owner
    return open_


def _is_abstract(symbol: Symbol, name: str) -> bool:
    return any("abstractmethod" in f.marks for f in symbol.cls.methods.get(name, ()))


def _left(left: dict[str, Symbol]) -> str:
    """Say which method, the first by its name, a class has not got, and who asks for it."""
    name, owner = min(left.items())
    return f"it has no {name}, which {owner.path}:{owner.cls.methods[name][0].line} asks for"


def _abstract(inference: Inference, node: ast.Call, scope: CodeScope) -> Misuses:
    for thing in inference.infer(node.func, scope):
        if thing.kind != "class" or not thing.exact:
            return
        left = abstract_methods(inference.world, thing.symbol)
        if left:
            yield Misuse(f"{thing.symbol.cls.name} is abstract: {_left(left)}", _token(node))
        return


def _incomplete(inference: Inference, node: ast.ClassDef, scope: CodeScope) -> Misuses:
    """Say that a class at the end of its line leaves some of its base's abstract methods open.

    A class may only hold static methods: where nobody calls it by its name, that is a note.
    """
    world = inference.world
    name = f"{scope.name}.{node.name}".lstrip(".")
    symbol = class_named(world, inference.path, name, node.lineno)
    if symbol is None:
        return
    left = abstract_methods(world, symbol)
    above = lineage(world, symbol).classes[1:]
    asked = {m for one in above for m in one.cls.methods if _is_abstract(one, m)}
    if (
        not left
        or symbol in left.values()
        or not asked & symbol.cls.methods.keys()
        or subclasses(world, symbol)
    ):
        return
    call = re.compile(rb"(?<!class )\b%b\(" % node.name.encode())
    named = is_mentioned(world, node.name, call, (inference.path,))
    level = Level.ERROR if named else Level.NOTE
    yield Misuse(f"{node.name} cannot be made: {_left(left)}", node.name, level)
