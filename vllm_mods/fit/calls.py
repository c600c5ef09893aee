"""Whether calls bind to what the tree defines, and whether what they pass and give is of the types stated there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.bodies import definition
from vllm_mods.fit.constructors import constructor
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Doubt, Misuse, Misuses, Problem, at_site, lasting
from vllm_mods.fit.search import overriding, subclasses
from vllm_mods.fit.shapes import Parameter, words
from vllm_mods.fit.signatures import (
    CallShape,
    call_text,
    dotted,
    every,
    is_none,
    opaque_decorator,
    passed,
    refusal,
    shape_of,
    unbound,
)
from vllm_mods.fit.symbols import Thing, builtin
from vllm_mods.fit.walk import CodeScope, CodeSite
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

_BUILTIN_METHODS = frozenset(
    name for kind in (dict, list, str, set, tuple, bytes) for name in dir(kind)
)
_NUMBERS, _TEXTS, _MANY = words("int bool float"), words("str bytes"), words("list tuple dict set")
# What cannot stand for a builtin type; what else does not suit, a program may well take.
_UNLIKE = {
    **dict.fromkeys(_NUMBERS, _TEXTS | _MANY),
    **dict.fromkeys(_TEXTS, _NUMBERS | _MANY),
}
_LITERALS = (
    *(ast.Constant, ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp),
    *(ast.Tuple, ast.JoinedStr),
)


class _No(NamedTuple):
    why: str
    where: str
    what: str


def call_problems(inference: Inference, sites: Iterable[CodeSite]) -> Iterator[Problem | Doubt]:
    """Judge every call among some sites."""
    for site in sites:
        if isinstance(site.node, ast.Call) and not site.scope.tolerant:
            answer = _judge(inference, site.node, site)
            if answer is not None:
                yield answer


def _judge(inference: Inference, node: ast.Call, site: CodeSite) -> Problem | Doubt | None:
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return None
    shape = shape_of(node)
    things = inference.infer(node.func, site.scope)
    if any(thing.symbol.external for thing in things):
        return None
    answers = [_of_thing(inference.world, thing, shape) for thing in things]
    noes = [answer for answer in answers if isinstance(answer, _No)]
    if not answers or None in answers:
        return None
    for thing, answer in zip(things, answers, strict=True):
        if isinstance(answer, str):
            # Nearly always a list, string or dictionary: not worth a note.
            usual = getattr(node.func, "attr", "") in _BUILTIN_METHODS and thing.kind == "unknown"
            return None if usual else Doubt(path=inference.path, what="call", why=answer)
    no = noes[0]
    text = call_text(node)
    token = text.rpartition(".")[2].rstrip("()")
    message = f"the call of {text} {no.why}: {no.where} defines {no.what}"
    key = site.scope.name, text, no.why
    return at_site(inference.path, site, FindingCode.FIT_CALL, Misuse(message, token), *key)


def _of_thing(  # noqa: PLR0911 - an answer per kind of thing
    world: World, thing: Thing, shape: CallShape
) -> _No | str | None:
    """Return a refusal, the reason why it can't be told, or ``None`` if the call binds."""
    if thing.kind == "class":
        return _of_class(world, thing, shape)
    if thing.kind != "function":
        return thing.why or f"what is called is not a function but a {thing.kind}"
    function = thing.function
    opaque = opaque_decorator(function)
    if opaque is not None:
        return f"the function is decorated with {opaque}"
    parameters = unbound(function) if thing.bound else function.parameters
    why = refusal(parameters, shape)
    if why is None:
        return None
    if thing.owner is not None and not thing.exact:
        # What is called may be an override.
        if function.abstract:
            return "the method is abstract"
        if any(refusal(unbound(other), shape) is None for other in overriding(world, thing)):
            return "a subclass accepts the call"
    owner = f"{thing.owner.cls.name}." if thing.owner is not None else ""
    return _No(why, thing.symbol.where, f"{owner}{function.name}{function.text()}")


def _of_class(world: World, thing: Thing, shape: CallShape) -> _No | str | None:
    maker = constructor(world, thing.symbol)
    why = None if maker.parameters is None else refusal(maker.parameters, shape)
    if why is None:
        return maker.why or None
    if not thing.exact and any(
        refusal(constructor(world, other).parameters or (), shape) is None
        for other in subclasses(world, thing.symbol)
    ):
        return "a subclass accepts the call"
    return _No(why, f"{maker.path}:{maker.line}", f"{thing.symbol.cls.name}{maker.text}")


# --- values


def value_problems(inference: Inference, sites: Iterable[CodeSite]) -> Iterator[Problem]:
    """Judge what some sites pass to functions of the tree, and what they do with results."""
    for site in sites:
        misuses = [(FindingCode.FIT_CALL, misuse) for misuse in _arguments(inference, site)]
        for value in _used(site.node):
            misuses += (
                (FindingCode.FIT_KIND, misuse) for misuse in _optional(inference, value, site.scope)
            )
        for code, misuse in misuses:
            yield at_site(inference.path, site, code, misuse, site.scope.name, lasting(misuse.text))


def _arguments(inference: Inference, site: CodeSite) -> Misuses:
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
        if overriding(world, things[0]):
            return
        text = f"the call of {name} passes a {kind.__name__} for {parameter.name}"
        stated = f"{path}:{line} states {parameter.name}: {parameter.type}"
        yield Misuse(f"{text}, and {stated}", name.rpartition(".")[2])


def _literal(node: ast.expr) -> bool:
    return isinstance(node, _LITERALS) and getattr(node, "value", "") not in (None, ...)


def _parameters(world: World, thing: Thing) -> tuple[tuple[Parameter, ...], str, int]:
    """Return what a call takes, and where; nothing where something else may be called."""
    if thing.kind == "class":
        maker = constructor(world, thing.symbol)
        plain = thing.exact and not maker.why and maker.text.startswith(".__init__")
        return (maker.parameters or () if plain else ()), maker.path, maker.line
    function = thing.function
    if opaque_decorator(function) or "overload" in function.marks:
        return (), "", 0
    parameters = unbound(function) if thing.bound else function.parameters
    return parameters, thing.symbol.path, function.line


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


def _optional(inference: Inference, value: ast.expr, scope: CodeScope) -> Misuses:
    """Say that a result may be ``None`` by its annotation, and that the function never asks."""
    call = value
    if isinstance(value, ast.Name):
        sources = scope.locals().get(value.id, [])
        if len(sources) != 1 or not isinstance(sources[0], ast.Call) or _asks(scope, value.id):
            return
        call = sources[0]
    if not isinstance(call, ast.Call):
        return
    things = inference.infer(call.func, scope)
    if len(things) != 1 or things[0].kind != "function":
        return
    thing, function = things[0], things[0].function
    if function.asynchronous or opaque_decorator(function):
        return
    node = definition(inference.world, thing.symbol.path, function)
    if _may_be_none(getattr(node, "returns", None)):
        text = f"{call_text(call)}() may be None, as {thing.symbol.where} states"
        text += f", and {scope.name or 'nobody'} does not ask"
        yield Misuse(text, function.name, Level.NOTE)


def _may_be_none(node: ast.AST | None) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            try:
                return _may_be_none(syntax_tree.parse(text.strip(), mode="eval").body)
            except (SyntaxError, ValueError):
                return False
        case ast.BinOp(op=ast.BitOr()):
            return any(_may_be_none(side) or is_none(side) for side in (node.left, node.right))
        case ast.Subscript():
            return (dotted(node.value) or "").rpartition(".")[2] == "Optional"
        case _:
            return False


def _asks(scope: CodeScope, name: str) -> bool:
    """Tell whether a function asks anything of a name."""
    for node in every(scope.node):
        match node:
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                tests: list[ast.expr] = [node.test]
            case ast.BoolOp() | ast.Compare() | ast.NamedExpr() | ast.UnaryOp(op=ast.Not()):
                tests = [node]
            case ast.Call(func=ast.Name(id="isinstance" | "cast" | "not_none")):
                tests = [node]
            case ast.comprehension():
                tests = node.ifs
            case ast.Match():
                tests = [node.subject]
            case _:
                continue
        if any(isinstance(i, ast.Name) and i.id == name for t in tests for i in every(t)):
            return True
    return False
