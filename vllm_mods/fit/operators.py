"""Operators that code registers with torch by name: the calls of ``torch.ops.vllm.name``, and the signatures registered."""

import ast
import re
from collections.abc import Iterator

from vllm_mods.fit.bodies import definition
from vllm_mods.fit.problems import Misuse, Misuses, nearest
from vllm_mods.fit.search import files_mentioning, is_mentioned
from vllm_mods.fit.shapes import Function
from vllm_mods.fit.signatures import (
    CallShape,
    DefNode,
    dotted,
    every,
    opaque_decorator,
    refusal,
    shape_of,
)
from vllm_mods.fit.walk import CodeSite
from vllm_mods.fit.world import World, remembered

_NAMES = re.compile(rb"op_name\s*=\s*[\"'](\w+)[\"']|[\"']vllm::(\w+)")
_REGISTER = re.compile(
    rb"direct_register_custom_op\(\s*(?:op_name\s*=\s*)?[\"'](\w+)[\"'],\s*(?:op_func\s*=\s*)?(\w+)\s*[,)]"
)
# What ``torch.library.infer_schema`` does not take of a parameter: builtin types; other names may stand for one that it takes.
_UNFIT = re.compile(
    r"\b(?:[Dd]ict|[Tt]uple|[Ss]et|Callable|Mapping|frozenset|bytes|object)\b(?:\[[^]]*\])?|\blist\b(?!\[)"
)


def operator_misuses(world: World, path: str, site: CodeSite) -> Misuses:
    """Judge what a site calls of ``torch.ops.vllm``, and what it registers there."""
    match site.node:
        case ast.Attribute(attr=name, value=value) if dotted(value) == "torch.ops.vllm":
            known = _names(world)
            if not _is_registered(world, name, known):
                yield Misuse(f"nothing registers torch.ops.vllm.{name}{nearest(name, known)}", name)
        case ast.Call(func=ast.Attribute(attr=name, value=value)) as call if (
            dotted(value) == "torch.ops.vllm"
        ):
            yield from _call(world, name, call)
        case ast.Call() as call if (dotted(call.func) or "").endswith("direct_register_custom_op"):
            yield from _schema(world, path, call)


@remembered
def _names(world: World) -> frozenset[str]:
    """Return the operators that the tree registers by name."""
    names = set()
    for _, data in files_mentioning(world, ("op_name", "vllm::")):
        names |= {(one or other).decode() for one, other in _NAMES.findall(data)}
    return frozenset(names)


def _is_registered(world: World, name: str, known: frozenset[str]) -> bool:
    """Tell whether an operator may be registered: any string or definition of its name counts."""
    text = re.compile(rb"[\"':]%b[\"'(]|def %b\b" % (name.encode(), name.encode()))
    return name in known or is_mentioned(world, name, text)


@remembered
def _registered(world: World, name: str) -> tuple[tuple[str, Function], ...]:
    """Return the functions that are registered under a name, with their places, as far as their definitions are found."""
    return tuple(
        (symbol.where, symbol.binding)
        for path, data in files_mentioning(world, ("direct_register_custom_op",))
        for operator, function in _REGISTER.findall(data)
        if operator == name.encode()
        for symbol in world.lookup(path, function.decode()).symbols
        if isinstance(symbol.binding, Function)
    )


def _call(world: World, name: str, node: ast.Call) -> Misuses:
    """Say that none of the functions of a name takes a call: which of several is registered, the platform decides."""
    registered = _registered(world, name)
    reasons = [refusal(one.parameters, shape_of(node)) for _, one in registered]
    if reasons and None not in reasons:
        where, _ = registered[0]
        yield Misuse(f"torch.ops.vllm.{name} is {where}, but the call {reasons[0]}", name)


def _schema(world: World, path: str, node: ast.Call) -> Misuses:
    """Say of a registered function which parameter torch makes no schema of."""
    given = [k.value for k in node.keywords if k.arg == "op_func"] + node.args[1:2]
    name = dotted(given[0]) if given else None
    symbols = world.resolve(path, name).symbols if name else ()
    if len(symbols) != 1 or not isinstance(symbols[0].binding, Function):
        return
    function = definition(world, symbols[0].path, symbols[0].binding)
    if function is not None and not function.decorator_list:
        why = next(_unfit_parameters(function, node), None)
        if why is not None:
            yield Misuse(f"torch registers no operator of {symbols[0].where}: {why}", function.name)
    needed = [p for p in symbols[0].binding.parameters if p.default is p.empty]
    shapes = [CallShape(len(some)) for some in (needed, symbols[0].binding.parameters)]
    for name in (dotted(k.value) for k in node.keywords if k.arg == "fake_impl"):
        for fake in world.resolve(path, name).symbols if name else ():
            if isinstance(fake.binding, Function) and not opaque_decorator(fake.binding):
                whys = [refusal(fake.binding.parameters, shape) for shape in shapes]
                if None not in whys:
                    text = f"the fake of {symbols[0].where} is {fake.where}, but a call like the operator's {whys[-1]}"
                    yield Misuse(text, fake.binding.name)


def _unfit_parameters(function: DefNode, call: ast.Call) -> Iterator[str]:
    arguments = function.args
    known = {node.arg for node in every(arguments) if isinstance(node, ast.arg)}
    changed = (inner for k in call.keywords if k.arg == "mutates_args" for inner in every(k.value))
    names = (str(node.value) for node in changed if isinstance(node, ast.Constant))
    yield from (f"it has no parameter {name} to change" for name in names if name not in known)
    if function.returns is None:
        yield "its return type is not annotated"
    if arguments.vararg or arguments.kwarg:
        yield "it takes * or **"
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if parameter.annotation is None:
            yield f"its parameter {parameter.arg} has no annotation"
        elif wrong := _UNFIT.search(ast.unparse(parameter.annotation)):
            yield f"its parameter {parameter.arg} is of type {wrong[0]}, which operators do not accept"
