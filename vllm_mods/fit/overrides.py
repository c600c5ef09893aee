"""Whether an override takes every call that the tree makes to what it overrides."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.hierarchy import TORCH_MODULE, lineage
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.fit.search import candidates, class_at, classes_in, definers, files_mentioning
from vllm_mods.fit.shapes import Function, words
from vllm_mods.fit.signatures import (
    implementations,
    is_property,
    opaque_decorator,
    refusal,
    shape_of,
    stands_in,
    unbound,
)
from vllm_mods.fit.symbols import Symbol
from vllm_mods.fit.walk import CodeScope, receiver, walk
from vllm_mods.fit.world import World, remembered
from vllm_mods.formats import syntax_tree

# Methods that Python calls, each class in its own way.
_OWN = words("__init__ __new__ __init_subclass__ __post_init__ __class_getitem__")
# Names that builtin types and tensors have as well: a receiver of unknown type may be one.
_COMMON = TORCH_MODULE.union(*(dir(kind) for kind in (dict, list, str, set, tuple, bytes)))


class Override(NamedTuple):
    """A method that stands in for another one further up."""

    owner: Symbol
    method: Function
    base: Symbol
    overridden: Function


def overrides_of(world: World, owner: Symbol, names: frozenset[str]) -> Iterator[Override]:
    """Yield what some methods of a class override in the tree."""
    line = lineage(world, owner)
    binding = owner.cls
    for name in sorted(names):
        mangled = name.startswith("__") and not name.endswith("__")
        if name in _OWN or mangled or name not in binding.methods:
            continue
        mine = implementations(binding.methods[name])
        for base in line.classes[1:]:
            if name in base.cls.methods:
                theirs = implementations(base.cls.methods[name])
                if len(mine) == 1 and len(theirs) == 1:
                    yield Override(owner=owner, method=mine[0], base=base, overridden=theirs[0])
                break


def override_problems(  # noqa: C901 - the questions in their order
    world: World, override: Override, path: str, line: int
) -> Iterator[Problem | Doubt]:
    """Judge one override by the calls that the tree makes.

    ``path`` and ``line`` are the place in a changed file that the answer is about.
    """
    mine, theirs = override.method, override.overridden
    if is_property(mine) or is_property(theirs):
        return
    if (mine.marks ^ theirs.marks) & {"staticmethod", "classmethod"}:
        return
    if stands_in(unbound(theirs), unbound(mine)):
        return
    opaque = opaque_decorator(mine) or opaque_decorator(theirs)
    if opaque is not None:
        yield Doubt(path, "override", f"the method is decorated with {opaque}")
        return
    # Of a tree that is here, all is searched.
    near = (path, override.owner.path, override.base.path) if world.tree.remote else ()
    unclear = 0
    for call in _calls(world, mine.name, near):
        shape = shape_of(call.node)
        refused = refusal(unbound(mine), shape)
        if refused is None:
            continue
        reached = _reaches(world, call, override, near)
        if reached is None:
            unclear += refusal(unbound(theirs), shape) is None
        elif refusal(unbound(reached), shape) is None:
            yield _problem(override, (path, line), f"{call.path}:{call.node.lineno}", refused)
            return
    if unclear:
        why = f"{unclear} calls of {mine.name} may reach it, on receivers of unknown type"
        yield Doubt(path, "override", why)
    searched, whole = candidates(world, near)
    if not whole:
        why = f"of this remote tree only {len(searched)} files were searched for calls"
        yield Doubt(path, "override", why)


def _problem(override: Override, place: tuple[str, int], caller: str, why: str) -> Problem:
    owner, base = override.owner.cls, override.base.cls
    mine = override.method
    scope = f"{owner.name}.{mine.name}"
    message = (
        f"{scope}{mine.text()} overrides {base.name}.{mine.name}"
        f"{override.overridden.text()}, and {caller} calls it: the call {why}"
    )
    if override.owner.path != place[0]:
        message = f"{override.owner.path}:{mine.line}: {message}"
    key = (override.owner.path, owner.name, mine.name)
    return Problem(FindingCode.FIT_OVERRIDE, *place, scope, message, key, token=mine.name)


def _reaches(
    world: World, call: _MethodCall, override: Override, near: tuple[str, ...]
) -> Function | None:
    """Return the method that a call site is written for if it may reach the override.

    ``None`` stands for "can't tell"; a call that cannot reach it returns the override itself,
    which by then has refused the call and so is no witness.
    """
    mine = override.method
    me, first = receiver(call.scope), next(iter(call.node.args), None)
    if me is not None and isinstance(first, ast.Name) and first.id == me[0]:
        # ``Base[Info].m(self)`` names the method that it wants.
        return mine
    for thing in Inference(world, call.path).infer(call.func.value, call.scope):
        if thing.kind == "unknown":
            break
        if thing.kind not in {"instance", "class", "super"}:
            continue
        line = lineage(world, thing.symbol)
        owner = line.owner(mine.name)
        # ``super().m()`` and ``Base.m(self)`` name the method that they want.
        named = thing.kind == "super" or (thing.kind == "class" and "classmethod" not in mine.marks)
        if owner is None or named or (thing.exact and owner[0] != override.owner):
            continue
        above = thing.symbol in lineage(world, override.owner).classes
        if above and _shadows(world, call, override):
            continue
        if above or owner[0] == override.owner:
            base = implementations(owner[1])
            return base[0] if owner[0] != override.owner else override.overridden
    else:
        return mine
    if mine.name in _COMMON or world.tree.remote or not _only_family(world, override, near):
        return None
    return override.overridden


def _shadows(world: World, call: _MethodCall, override: Override) -> bool:
    """Tell whether a call on ``self`` stands in a method that the override's class replaces."""
    scope = next((one for one in call.scope.around() if receiver(one)), None)
    if scope is None:
        return False
    here = class_at(world, call.path, scope.parent)
    name = scope.name.rpartition(".")[2]
    line = lineage(world, override.owner)
    owner = line.owner(name)
    if here is None or here not in line.classes or owner is None or owner[0] == here:
        return False
    return b"super().%b(" % name.encode() not in (world.read(owner[0].path) or b"")


def _only_family(world: World, override: Override, near: tuple[str, ...]) -> bool:
    """Tell whether every class that defines the method has the overridden one as a base."""
    name = override.method.name
    line = lineage(world, override.base)
    root = [found for found in line.classes if name in found.cls.methods][-1]
    return all(root in lineage(world, found).classes for found in definers(world, name, near))


class _MethodCall(NamedTuple):
    """A call ``….method(…)`` of the tree, and where it stands."""

    path: str
    node: ast.Call
    func: ast.Attribute
    scope: CodeScope


@remembered
def _calls(world: World, method: str, near: tuple[str, ...]) -> tuple[_MethodCall, ...]:
    """Return every call of methods of a name, found by text first."""
    calls: list[_MethodCall] = []
    called = re.compile(rb"\.%b\s*\(" % re.escape(method.encode()))
    for path, data in files_mentioning(world, (method,), near):
        tree = syntax_tree.module(data) if called.search(data) else None
        if tree is None:
            continue
        lines = frozenset(n for n, row in enumerate(data.splitlines(), 1) if called.search(row))
        for site in walk(tree, lines):
            match site.node:
                case ast.Call(func=ast.Attribute(attr=attr) as func) as node if attr == method:
                    calls.append(_MethodCall(path, node, func, site.scope))
                case _:
                    pass
    return tuple(calls)


def changed_methods(
    before: World, after: World, path: str
) -> Iterator[tuple[Symbol, frozenset[str], frozenset[str]]]:
    """Yield each class of a file with the methods to judge as overrides, and as overridden.

    The first are new or changed, or all of them where the bases changed; the second were
    there and take fewer or other calls now.
    """
    old = dict(classes_in(before, path))
    for name, symbol in classes_in(after, path):
        binding = symbol.cls
        was = old[name].cls if name in old else None
        if was is None or was.bases != binding.bases:
            yield symbol, frozenset(binding.methods), frozenset()
            continue
        changed = frozenset(
            method
            for method, functions in binding.methods.items()
            if _signature(functions) != _signature(was.methods.get(method, ()))
        )
        if changed:
            yield symbol, changed, changed & frozenset(was.methods)


def _signature(functions: tuple[Function, ...]) -> tuple[object, ...]:
    return tuple(
        (tuple((p.name, p.kind, p.required) for p in f.parameters), f.decorators) for f in functions
    )
