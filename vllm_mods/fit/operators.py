"""Operators that code registers with torch by name: the calls of ``torch.ops.vllm.name``, and the fakes registered."""

import ast
import re

from vllm_mods.fit.problems import Misuse, Misuses, nearest
from vllm_mods.fit.search import files_mentioning, is_mentioned
from vllm_mods.fit.shapes import Function, Symbol
from vllm_mods.fit.signatures import CallShape, dotted, every, opaque_decorator, refusal, shape_of
from vllm_mods.fit.walk import CodeSite
from vllm_mods.fit.world import World, remembered

_NAMES = re.compile(rb"op_name\s*=\s*[\"'](\w+)[\"']|[\"']vllm::(\w+)")
_REGISTER = re.compile(
    rb"direct_register_custom_op\(\s*(?:op_name\s*=\s*)?[\"'](\w+)[\"'],\s*(?:op_func\s*=\s*)?(\w+)\s*[,)]"
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
            yield from _registration(world, path, call)


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


def _registration(world: World, path: str, node: ast.Call) -> Misuses:
    """Say that a function has no parameter that it is said to change, or that its fake does not take its calls."""
    given = {word.arg: word.value for word in node.keywords}
    function = given.get("op_func") or next(iter(node.args[1:2]), None)
    both = map(dotted, (function, given.get("fake_impl")))
    match [world.resolve(path, name).symbols if name else () for name in both]:
        case [[Symbol(binding=Function(parameters=takes)) as real], fakes]:
            known, changed = (
                {one.name for one in takes},
                every(given.get("mutates_args") or node.func),
            )
            names = {str(one.value) for one in changed if isinstance(one, ast.Constant)}
            for name in sorted(names - known):
                yield Misuse(f"{real.where} has no parameter {name} to change", name)
            shapes = len([one for one in takes if one.default is one.empty]), len(takes)
            for fake in fakes:
                if isinstance(fake.binding, Function) and not opaque_decorator(fake.binding):
                    whys = [refusal(fake.binding.parameters, CallShape(many)) for many in shapes]
                    if None not in whys:
                        text = f"the fake of {real.where} is {fake.where}, but a call like the operator's {whys[-1]}"
                        yield Misuse(text, fake.binding.name)
        case _:
            pass
