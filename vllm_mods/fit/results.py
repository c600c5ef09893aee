"""What functions that state no result give: a tuple of another length than what is unpacked, a generator that is entered."""

import ast
from collections.abc import Iterator

from vllm_mods.fit.bodies import arities, definition, is_generator
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.problems import Misuse, Misuses
from vllm_mods.fit.search import class_at, classes_in, meant_in, subclasses
from vllm_mods.fit.shapes import Function, Symbol, words
from vllm_mods.fit.signatures import (
    call_text,
    decorator_name,
    dotted,
    opaque_decorator,
    refusal,
    shape_of,
    unbound,
)
from vllm_mods.fit.walk import CodeScope, CodeSite, receiver
from vllm_mods.fit.world import World

_CACHES = words("cache lru_cache")
# Methods of an event loop that call what they are given, and its place among their arguments; the rest are arguments of it.
_PLACES = {"run_in_executor": 1, "call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1}


def result_misuses(world: World, path: str, site: CodeSite) -> Misuses:
    """Judge what a site does with what plain functions and own methods give."""
    match site.node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
            call = value.value if isinstance(value, ast.Await) else value
            if isinstance(call, ast.Call) and not any(isinstance(t, ast.Starred) for t in targets):
                awaited = isinstance(value, ast.Await)
                yield from _unpacked(world, path, call, site.scope, len(targets), awaited=awaited)
        case ast.With(items=items):
            for item in items:
                if isinstance(item.context_expr, ast.Call):
                    yield from _entered(world, path, item.context_expr, site.scope)
        case ast.Call() as node:
            for call in _handed(node):
                yield from _refused(world, path, call, site.scope, direct=call is node)
        case ast.ClassDef() if "dataclass" in map(decorator_name, site.node.decorator_list):
            yield from _mutable(site.node)
        case _:
            pass


def _handed(node: ast.Call) -> Iterator[ast.Call]:
    """Yield a call, and the one that a thread, a process or an event loop makes with what it is given."""
    yield node
    given = {word.arg: word.value for word in node.keywords}
    name = call_text(node).rpartition(".")[2]
    more = node.args[_PLACES[name] :] if name in _PLACES else []
    match given.get("target"), given.get("args", ast.Tuple([])), more:
        case ast.expr() as target, ast.Tuple(elts=elts), _ if name in {"Thread", "Process"}:
            options = given.get("kwargs")
            yield ast.Call(target, elts, [ast.keyword(None, options)] if options else [])
        case _, _, [target, *arguments]:
            yield ast.Call(target, arguments, [])
        case _:
            pass


def _refused(world: World, path: str, call: ast.Call, scope: CodeScope, *, direct: bool) -> Misuses:
    """Judge the calls of which the type checker does not see that they do not bind: those of cached functions, too."""
    for symbol, function in _function(world, path, call, scope):
        if opaque_decorator(function) or (direct and function.marks.isdisjoint(_CACHES)):
            continue
        bound = call_text(call).startswith("self.") or "classmethod" in function.marks
        why = refusal(unbound(function) if bound else function.parameters, shape_of(call))
        if why and not _is_overridden(world, symbol, function):
            yield Misuse(f"{call_text(call)} is {symbol.where}, but the call {why}", function.name)


def _mutable(node: ast.ClassDef) -> Misuses:
    """Say of which field of a dataclass Python refuses the default."""
    for field in node.body:
        match field:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.List() | ast.Dict() | ast.Set()):
                if "ClassVar" not in ast.unparse(field.annotation):
                    yield Misuse(
                        f"the default of {name} is mutable, which no dataclass takes", name
                    )
            case _:
                pass


def _function(
    world: World, path: str, call: ast.Call, scope: CodeScope
) -> list[tuple[Symbol, Function]]:
    """Return the one plain function that a call is of, by its name at module level or on ``self``."""
    name = dotted(call.func) or ""
    head, _, rest = name.partition(".")
    symbols: tuple[Symbol, ...] = ()
    method = next((one for one in scope.around() if receiver(one)), None)
    if method is not None and head == receiver(method) and "." not in rest:
        cls = class_at(world, path, method.parent)
        owner, functions = (cls and lineage(world, cls).owner(rest)) or (None, ())
        symbols = tuple(Symbol(owner.path, function) for function in functions if owner)
    elif name:
        symbols = meant_in(world, path, scope, name)
    plain = [(s, s.binding) for s in symbols if isinstance(s.binding, Function)]
    return plain if len(plain) == len(symbols) == 1 else []


def _unpacked(
    world: World, path: str, call: ast.Call, scope: CodeScope, many: int, *, awaited: bool
) -> Misuses:
    for symbol, function in _function(world, path, call, scope):
        opaque = opaque_decorator(function) or "contextmanager" in function.marks
        lengths = arities(definition(world, symbol.path, function)) or {None}
        if opaque or function.asynchronous is not awaited or {None, many} & lengths:
            continue
        if not _is_overridden(world, symbol, function):
            gives = " or ".join(str(length) for length in sorted(lengths, key=str))
            text = f"{call_text(call)}() is unpacked into {many}"
            yield Misuse(f"{text}, and {symbol.where} returns {gives}", function.name)


def _entered(world: World, path: str, call: ast.Call, scope: CodeScope) -> Misuses:
    for symbol, function in _function(world, path, call, scope):
        node = None if function.decorators else definition(world, symbol.path, function)
        if node and is_generator(node) and not _is_overridden(world, symbol, function):
            text = f"{call_text(call)}() is used in `with`, but {symbol.where} is a generator"
            yield Misuse(f"{text} without @contextmanager", function.name)


def _is_overridden(world: World, symbol: Symbol, function: Function) -> bool:
    """Tell whether a method has another one below its class, which may be meant."""
    owners = (c for _, c in classes_in(world, symbol.path))
    mine = (c for c in owners if function in c.cls.methods.get(function.name, ()))
    return any(function.name in one.cls.methods for c in mine for one in subclasses(world, c))
