"""What the type checker cannot see: what functions give that state no result, what cached ones take, which abstract methods a class leaves open."""

import ast
import re
from collections.abc import Iterator

from vllm_mods.base.model import Level
from vllm_mods.fit import search
from vllm_mods.fit.bodies import arities, definition, is_generator
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.problems import Misuse, Misuses
from vllm_mods.fit.shapes import Function, Symbol
from vllm_mods.fit.signatures import call_text, dotted, refusal
from vllm_mods.fit.walk import CodeScope, CodeSite, receiver
from vllm_mods.fit.world import World, remembered

_CACHED = re.compile(rb"@(?:functools\.)?(?:lru_)?cache\b[^@]*?\bdef (\w+)")
# Methods of an event loop that call what they are given, and its place among their arguments; the rest are arguments of it.
_PLACES = {"run_in_executor": 1, "call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1}


def result_misuses(world: World, path: str, site: CodeSite) -> Misuses:
    """Judge what a site does with plain functions, own methods and classes."""
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
        case _:
            pass


def _unseen(world: World, node: ast.Call) -> Iterator[ast.Call]:
    """Yield the call of a cached function, and the one that a thread, a process or an event loop makes with what it is given."""
    given = {word.arg: word.value for word in node.keywords}
    name = call_text(node).rpartition(".")[2]
    if name in _cached(world):
        yield node
    more = node.args[_PLACES[name] :] if name in _PLACES else []
    match given.get("target"), given.get("args", ast.Tuple([])), more:
        case ast.expr() as target, ast.Tuple(elts=elts), _ if name in {"Thread", "Process"}:
            options = given.get("kwargs")
            yield ast.Call(target, elts, [ast.keyword(None, options)] if options else [])
        case _, _, [target, *arguments]:
            yield ast.Call(target, arguments, [])
        case _:
            pass


def call_misuses(world: World, path: str, site: CodeSite) -> Misuses:
    """Judge the calls of which the type checker does not see that they do not bind."""
    for call in _unseen(world, site.node) if isinstance(site.node, ast.Call) else ():
        for symbol, function in _function(world, path, call, site.scope):
            name = call_text(call)
            bound = name.startswith("self.") or "classmethod" in function.marks
            why = refusal(function.unbound if bound else function.parameters, call)
            sure = not function.opaque_decorator and not _is_overridden(world, symbol, function)
            if why and sure:
                yield Misuse(f"{name} is {symbol.where}, but the call {why}", function.name)


@remembered
def _cached(world: World) -> frozenset[str]:
    """Return the names of the functions whose results are kept."""
    files = (world.glance(path) or b"" for path in search.python_files(world))
    marks = b"@cache", b"lru_cache", b"functools.cache"
    texts = (data for data in files if any(mark in data for mark in marks))
    return frozenset(name.decode() for data in texts for name in _CACHED.findall(data))


def _function(
    world: World, path: str, call: ast.Call, scope: CodeScope
) -> list[tuple[Symbol, Function]]:
    """Return the one plain function that a call is of, by its name at module level or on ``self``."""
    name = dotted(call.func) or ""
    head, _, rest = name.partition(".")
    symbols: tuple[Symbol, ...] = ()
    method = next((one for one in scope.around() if receiver(one)), None)
    if method is not None and head == receiver(method) and "." not in rest:
        cls = search.class_at(world, path, method.parent)
        owner, functions = (cls and lineage(world, cls).owner(rest)) or (None, ())
        symbols = tuple(Symbol(owner.path, function) for function in functions if owner)
    elif name:
        symbols = search.meant_in(world, path, scope, name)
    plain = [(s, s.binding) for s in symbols if isinstance(s.binding, Function)]
    return plain if len(plain) == len(symbols) == 1 else []


def _unpacked(
    world: World, path: str, call: ast.Call, scope: CodeScope, many: int, *, awaited: bool
) -> Misuses:
    for symbol, function in _function(world, path, call, scope):
        opaque = function.opaque_decorator or "contextmanager" in function.marks
        lengths = arities(definition(world, symbol.path, function)) or {None}
        if opaque or function.asynchronous is not awaited or {None, many} & lengths:
            continue
        if not _is_overridden(world, symbol, function):
            gives = " or ".join(str(length) for length in sorted(lengths, key=str))
            text = f"{call_text(call)}() is unpacked into {many} values"
            yield Misuse(f"{text}, but {symbol.where} returns {gives}", function.name)


def _entered(world: World, path: str, call: ast.Call, scope: CodeScope) -> Misuses:
    for symbol, function in _function(world, path, call, scope):
        node = None if function.decorators else definition(world, symbol.path, function)
        if node and is_generator(node) and not _is_overridden(world, symbol, function):
            text = f"{call_text(call)}() is used in `with`, but {symbol.where} is a generator"
            yield Misuse(f"{text} without @contextmanager", function.name)


def _is_overridden(world: World, symbol: Symbol, function: Function) -> bool:
    """Tell whether a method has another one below its class, which may be meant."""
    owners = (c for _, c in search.classes_in(world, symbol.path))
    mine = (c for c in owners if function in c.cls.methods.get(function.name, ()))
    below = (one.cls for cls in mine for one in search.subclasses(world, cls))
    return any(function.name in cls.methods for cls in below)


# --- classes that nobody can make one of


def abstract_methods(world: World, symbol: Symbol) -> dict[str, Symbol]:
    """Return the abstract methods that a class leaves open, where Python holds it to them."""
    line = lineage(world, symbol)
    metas = {one.cls.metaclass for one in line.classes}
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


def abstract_misuses(world: World, path: str, site: CodeSite, at_origin: World | None) -> Misuses:
    """Say that a class at the end of its line leaves abstract methods open: a note where nobody calls it and it was no other ``at_origin``."""
    node = site.node
    if not isinstance(node, ast.ClassDef):
        return
    name = f"{site.scope.name}.{node.name}".lstrip(".")
    symbol = search.class_named(world, path, name, node.lineno)
    if symbol is None:
        return
    left = abstract_methods(world, symbol)
    above = lineage(world, symbol).classes[1:]
    asked = {m for one in above for m in one.cls.methods if _is_abstract(one, m)}
    at_end = asked & symbol.cls.methods.keys() and symbol not in left.values()
    if not left or not at_end or search.subclasses(world, symbol):
        return
    call = re.compile(rb"(?<!class )\b%b\(" % node.name.encode())
    there = None if at_origin is None else dict(search.classes_in(at_origin, path)).get(name)
    is_news = at_origin and there and not abstract_methods(at_origin, there)
    level = Level.ERROR if is_news or search.is_mentioned(world, node.name, call) else Level.NOTE
    method, owner = min(left.items())
    asks = f"{owner.path}:{owner.cls.methods[method][0].line} requires"
    text = f"{node.name} cannot be instantiated: the class has no {method}, which {asks}"
    yield Misuse(text, node.name, level)
