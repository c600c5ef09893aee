"""Whether what code puts in the place of vLLM's own while it runs takes the calls that the tree makes, and gives what they use."""

import ast
import re
from collections.abc import Collection, Sequence
from difflib import SequenceMatcher

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.bodies import definition
from vllm_mods.fit.calls import calls_of, receiver_types
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.overrides import Override, Taker, broken, reaches
from vllm_mods.fit.problems import Problem, Problems
from vllm_mods.fit.run_time import Write
from vllm_mods.fit.search import is_mentioned, meant_in, times_mentioned
from vllm_mods.fit.shapes import Class, Function, Symbol
from vllm_mods.fit.signatures import DefNode, dotted, function_of, parameters_of, statements
from vllm_mods.fit.walk import CodeScope, local_names
from vllm_mods.fit.world import World, module_stem

_OF_CLASS = re.compile(r"<class '|type\[")


def replacement_problems(
    world: World, write: Write, replaced: Collection[tuple[str, str]]
) -> Problems:
    """Judge what a write puts in the place of a function, method or class; functions that are ``replaced`` themselves call nothing any more."""
    if write.name is None or write.value is None or write.scope.tolerant:
        return
    owners = write.owners(world)
    new = taker_of(world, write.path, write.scope, write.value)
    if new is None or len(owners) != 1:
        return
    why = _why(world, replaced, write.name, owners[0], new)
    if not why:
        return
    place = write.path, write.node.lineno, write.scope.name
    name = f"{module_stem(owner_name(owners[0]))}.{write.name}"
    text = f"at run time {name} is replaced by {new.function.name}{new.function.text()}, {why}"
    yield Problem(FindingCode.FIT_OVERRIDE, *place, text, (name,), write.name)


def owner_name(owner: Symbol) -> str:
    """Return the name of a class or module, for a message."""
    return owner.cls.name if isinstance(owner.binding, Class) else str(owner.module)


# --- what is put in


def taker_of(  # noqa: PLR0911 - an answer per kind of value
    world: World, path: str, scope: CodeScope, value: ast.expr
) -> Taker | None:
    """Return what a value is, where it is one plain function."""
    match value:
        case ast.Lambda():
            return Taker(Function("lambda", value.lineno, parameters_of(value.args), (), False), value)  # fmt: skip
        case ast.Call(func=ast.Name(id="staticmethod" | "classmethod" | "property" as kind), args=[inner]):  # fmt: skip
            taker = taker_of(world, path, scope, inner)
            return taker and taker._replace(function=taker.function._replace(decorators=(kind,)))
        case ast.Call(func=ast.Name(id=name)):
            maker = _defined(scope, name)
            last = maker.body[-1] if maker else None
            if maker and isinstance(last, ast.Return) and isinstance(last.value, ast.Name):
                return taker_of(world, path, CodeScope(maker, name, scope), last.value)
            return None
        case ast.Name(id=name) if node := _defined(scope, name):
            function = function_of(node)
            kept = tuple(one for one in function.decorators if not one.endswith("wraps"))
            function = function._replace(decorators=kept)
            known = function.is_property or function.opaque_decorator is None
            return Taker(function, node) if known else None
        case ast.Name(id=name):
            return _plain(world, meant_in(world, path, scope, name))
        case ast.Attribute(value=of, attr=name) if whose := dotted(of):
            symbols = meant_in(world, path, scope, whose)
            return plain_function(world, symbols[0], name) if len(symbols) == 1 else None
        case _:
            return None


def _defined(scope: CodeScope, name: str) -> DefNode | None:
    """Return the one function that a name is bound to in a scope or one around it, by a ``def`` alone."""
    for around in scope.around():
        if isinstance(around.node, ast.ClassDef) and around is not scope:
            continue  # its functions do not see its names
        body = getattr(around.node, "body", [])
        nodes = [node for node, _ in statements(body if isinstance(body, list) else [])]
        bound = [n for n in nodes if isinstance(n, DefNode | ast.ClassDef) and n.name == name]
        stored = [t for n in nodes if isinstance(n, ast.Assign) for t in n.targets]
        several = len(bound) != 1 or any(dotted(target) == name for target in stored)
        if bound or name in local_names(around.node):
            plain = not several and len(local_names(around.node).get(name, bound)) == 1
            return bound[0] if plain and isinstance(bound[0], DefNode) else None
    return None


def plain_function(world: World, owner: Symbol, name: str) -> Taker | None:
    """Return what a class or module has under a name, where it is one plain function."""
    if isinstance(owner.binding, Class):
        above, functions = lineage(world, owner).owner(name) or (owner, ())
        return _plain(world, [Symbol(above.path, one) for one in functions])
    return _plain(world, world.lookup(owner.module, name).symbols) if owner.module else None


def _plain(world: World, symbols: Sequence[Symbol]) -> Taker | None:
    match symbols:
        case [Symbol(path=path, binding=Function() as function)]:
            if function.is_property or function.opaque_decorator is None:
                return Taker(function, definition(world, path, function))
        case [Symbol(binding=Class()) as cls] if maker := plain_function(world, cls, "__init__"):
            # called as a function without ``self``
            function = maker.function._replace(
                name=cls.cls.name, parameters=maker.function.unbound, decorators=("staticmethod",)
            )
            return Taker(function, None)
    return None


# --- what the tree does with it


def _why(  # noqa: PLR0911 - an answer per kind of what was there
    world: World, replaced: Collection[tuple[str, str]], name: str, owner: Symbol, new: Taker
) -> str:
    """Say what is wrong with what takes another's place, ``""`` if nothing is known to be."""
    old, cls = plain_function(world, owner, name), isinstance(owner.binding, Class)
    if old is None:
        return _misspelt(world, name, owner) if cls else ""
    if old.function.is_property:
        read = re.compile(rb"\.%b\b(?!\s*[(=])" % name.encode())
        no_property = not new.function.is_property and is_mentioned(world, name, read)
        return "but callers read it as a property" if no_property else ""
    if new.function.is_property:
        return ""
    if owner.module:
        meant = world.lookup(owner.module, name).symbols[0]
        return _of_calls(world, name, meant, (old, new), owner.module)
    if name == "__init__":
        return _of_calls(world, owner.cls.name, owner, (old, new))
    calls = (c for c in calls_of(world, name) if (*c.scope.name.split(".")[-2:],) not in replaced)
    judged = ((c, [broken(c, old, new, bound=bound) for bound in (True, False)]) for c in calls)
    candidates = {call: whys for call, whys in judged if any(whys)}
    kinds = receiver_types(world, tuple(candidates))
    override = Override(owner, new.function, owner, old.function)
    for call, (on_instance, on_class) in candidates.items():
        why = on_class if _OF_CLASS.match(kinds.get(call, "")) else on_instance
        if why and reaches(world, call, override, kinds.get(call, "")):
            return f"and {why}"
    return ""


def _of_calls(
    world: World, name: str, meant: Symbol, pair: tuple[Taker, Taker], module: str | None = None
) -> str:
    """Judge the calls of a name: of a function or class of a module, those through it or in it, since others have imported the old one."""
    for call in calls_of(world, name, rb"\b"):
        text = dotted(call.node.func) or ""
        if module is None or "." in text or call.path == module:
            is_meant = meant_in(world, call.path, call.scope, text) == (meant,)
            if is_meant and (why := broken(call, *pair, bound=module is None)):
                return f"and {why}"
    return ""


def _misspelt(world: World, name: str, owner: Symbol) -> str:
    """Say that nothing reads what is put in, and that its name is another one's but for a slip of the keys."""
    line = lineage(world, owner)
    if name in attributes(world, line):
        return ""
    methods = {method for one in line.classes for method in one.cls.methods}
    near = sorted(method for method in methods if _is_slip(name, method))
    used = re.compile(rb"\.%b\b(?!\s*=[^=])|import .*\b%b\b" % (name.encode(), name.encode()))
    quoted = re.compile(rb"[\"']%b[\"']" % name.encode())
    if not near or is_mentioned(world, name, used) or times_mentioned(world, name, quoted) > 1:
        return ""
    return f"but nothing reads that name; the nearest name is {near[0]}"


def _is_slip(name: str, other: str) -> bool:
    """Tell whether two names differ by one letter, or by the order of two."""
    same = SequenceMatcher(None, name, other).get_matching_blocks()
    by_one = sum(block.size for block in same) >= max(len(name), len(other)) - 1
    return len(name) > 3 and (by_one or sorted(name) == sorted(other))
