"""Whether the values that code passes and gets are of the types that the tree states for them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from vllm_mods.base.model import Level
from vllm_mods.fit.binding import has_kind, opaque_decorator, passed, unbound
from vllm_mods.fit.bodies import definition
from vllm_mods.fit.constructors import constructor
from vllm_mods.fit.families import subclasses
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Problem, at_site, lasting
from vllm_mods.fit.shapes import Parameter
from vllm_mods.fit.signatures import dotted, every
from vllm_mods.fit.things import Thing, builtin, call_text
from vllm_mods.fit.walk import CodeScope, CodeSite
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

_NUMBERS, _TEXTS, _MANY = (
    {"int", "bool", "float"},
    {"str", "bytes"},
    {"list", "tuple", "dict", "set"},
)
# What cannot stand for a builtin type; what else does not suit, a program may well take.
_UNLIKE = {
    **dict.fromkeys(_NUMBERS, _TEXTS | _MANY),
    **dict.fromkeys(_TEXTS, _NUMBERS | _MANY),
}
_LITERALS = (ast.Constant, ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)
_ALSO = (ast.Tuple, ast.JoinedStr)


def value_problems(inference: Inference, sites: Iterable[CodeSite]) -> Iterator[Problem]:
    """Judge what some sites pass to functions of the tree, and what they do with results."""
    for site in sites:
        found = [("fit-call", Level.ERROR, one) for one in _arguments(inference, site)]
        for value in _used(site.node):
            noted = _optional(inference, value, site.scope)
            found += [("fit-kind", Level.NOTE, one) for one in noted]
        for code, level, (text, token) in found:
            key = site.scope.name, lasting(text)
            yield at_site(inference.path, site, token, text, *key, level=level, code=code)


def _arguments(inference: Inference, site: CodeSite) -> Iterator[tuple[str, str]]:
    """Say that a literal is passed where another builtin type is stated."""
    node, scope = site.node, site.scope
    if not isinstance(node, ast.Call):
        return
    literal = {id(v) for v in (*node.args, *(k.value for k in node.keywords)) if _literal(v)}
    things = inference.infer(node.func, scope) if literal else ()
    if len(things) != 1 or things[0].kind not in {"function", "class"}:
        return
    world, name = inference.world, call_text(node)
    parameters, path, line = _parameters(world, things[0])
    for parameter, value in passed(parameters, node):
        kind = builtin(inference.infer(value, scope)[0]) if id(value) in literal else None
        if kind is None or kind.__name__ not in _UNLIKE.get(parameter.type or "", ()):
            continue
        if world.lookup(path, parameter.type or "").exists is not False:
            continue  # a class of that name
        if _overridden(world, things[0]):
            return
        stated = f"{path}:{line} states {parameter.name}: {parameter.type}"
        yield (
            f"the call of {name} passes a {kind.__name__} for {parameter.name}, and {stated}",
            (name.rpartition(".")[2]),
        )


def _literal(node: ast.expr) -> bool:
    return isinstance(node, (*_LITERALS, *_ALSO)) and getattr(node, "value", "") not in (None, ...)


def _parameters(world: World, thing: Thing) -> tuple[tuple[Parameter, ...], str, int]:
    """Return what a call takes, and where; nothing where something else may be called."""
    if thing.kind == "class":
        made = constructor(world, thing.found)
        plain = thing.exact and not made.why and made.text.startswith(".__init__")
        return (made.parameters or () if plain else ()), made.path, made.line
    function = thing.functions[0]
    if opaque_decorator(function) or has_kind(function, "overload"):
        return (), "", 0
    parameters = unbound(function) if thing.bound else function.parameters
    return parameters, thing.found.path, function.line


def _overridden(world: World, thing: Thing) -> bool:
    """Tell whether a subclass may have another method there."""
    if thing.exact or thing.on is None or not thing.functions:
        return False
    name = thing.functions[0].name
    return any(name in other.cls.methods for other in subclasses(world, thing.on))


def _used(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node uses in a way that ``None`` does not take."""
    match node:
        case ast.Attribute(ctx=ast.Load()) | ast.Subscript(ctx=ast.Load()):
            yield node.value
        case ast.For():
            yield node.iter
        case ast.Assign(targets=[ast.Tuple()]):
            yield node.value
        case _:
            pass


def _optional(inference: Inference, value: ast.expr, scope: CodeScope) -> Iterator[tuple[str, str]]:
    """Say that a result may be ``None`` by its annotation, and that the function never asks."""
    call = value
    if isinstance(value, ast.Name):
        sources = scope.locals().get(value.id, [])
        if len(sources) != 1 or not isinstance(sources[0], ast.Call) or _asked(scope, value.id):
            return
        call = sources[0]
    if not isinstance(call, ast.Call):
        return
    things = inference.infer(call.func, scope)
    if len(things) != 1 or things[0].kind != "function":
        return
    thing, function = things[0], things[0].functions[0]
    if function.asynchronous or opaque_decorator(function):
        return
    node = definition(inference.world, thing.found.path, function)
    if _may_be_none(getattr(node, "returns", None)):
        where = f"{thing.found.path}:{function.line}"
        text = f"{call_text(call)}() may be None, as {where} states, and {scope.name or 'nobody'}"
        yield f"{text} does not ask", function.name


def _may_be_none(node: ast.AST | None) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            try:
                return _may_be_none(syntax_tree.parse(text.strip(), mode="eval").body)
            except (SyntaxError, ValueError):
                return False
        case ast.BinOp(op=ast.BitOr()):
            return any(
                _may_be_none(side) or (isinstance(side, ast.Constant) and side.value is None)
                for side in (node.left, node.right)
            )
        case ast.Subscript():
            return (dotted(node.value) or "").rpartition(".")[2] == "Optional"
        case _:
            return False


def _asked(scope: CodeScope, name: str) -> bool:
    """Tell whether a function asks anything of a name."""
    for node in every(scope.node):
        tests: list[ast.AST] = []
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                tests = [node.test]
            case ast.BoolOp() | ast.Compare() | ast.NamedExpr():
                tests = [node]
            case ast.UnaryOp(op=ast.Not()):
                tests = [node]
            case ast.comprehension():
                tests = list(node.ifs)
            case ast.Match():
                tests = [node.subject]
            case ast.Call(func=ast.Name(id="isinstance" | "cast" | "not_none")):
                tests = [node]
            case _:
                continue
        if any(isinstance(i, ast.Name) and i.id == name for t in tests for i in every(t)):
            return True
    return False
