"""Searches of the tree for the subclasses of a class, on demand only: they cost a text search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256

from vllm_mods.fit.found import Symbol, Thing
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.search import candidates, files_mentioning
from vllm_mods.fit.shapes import Class, Function
from vllm_mods.fit.walk import CodeScope
from vllm_mods.fit.world import World

# The bases of a class; of text that only looks like one a superset is made.
_CLASS = re.compile(rb"class\s+\w+[^(:\n]*\((.*?)\)\s*:", re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_]\w*")


def classes_in(world: World, path: str) -> Iterator[tuple[str, Symbol]]:
    """Yield every class of a module that has a name at module level, nested ones dotted."""
    module = world.module(path)
    if module is None:
        return
    stack = [
        (name, binding)
        for name, bindings in module.names.items()
        for binding in bindings
        if isinstance(binding, Class)
    ]
    while stack:
        name, binding = stack.pop(0)
        yield name, Symbol(path=path, binding=binding)
        stack.extend((f"{name}.{inner}", c) for inner, c in binding.nested.items())


def subclasses(world: World, found: Symbol) -> tuple[Symbol, ...]:
    """Return the classes below a class, as far as a text search for its name leads to them."""
    if found in world.families:
        return world.families[found]
    known: dict[Symbol, None] = {}
    queue = [found]
    while queue:
        name = queue.pop().cls.name.encode()
        for path in _heirs(world, found.path).get(name, ()):
            world.consulted.add(path)
            for _, other in classes_in(world, path):
                if other == found or other in known:
                    continue
                if found in lineage(world, other).classes:
                    known[other] = None
                    queue.append(other)
    world.families[found] = tuple(known)
    return world.families[found]


def overriding(world: World, thing: Thing) -> list[Function]:
    """Return the methods of subclasses that may be there in place of one."""
    below = () if thing.exact or thing.on is None else subclasses(world, thing.on)
    return [f for one in below for f in one.cls.methods.get(thing.function.name, ())]


def _heirs(world: World, near: str) -> dict[bytes, list[str]]:
    """Return the files with a class that has a base of some name, under whatever alias."""
    if world.heirs is None or world.tree.remote:
        world.heirs = {}
        for path in candidates(world, (near,))[0]:
            data = world.glance(path) or b""
            digest, known = sha256(data).digest(), world.cache.bases
            if digest not in known:
                known[digest] = _bases(data)
            for name in known[digest]:
                world.heirs.setdefault(name, []).append(path)
    return world.heirs


def _bases(data: bytes) -> frozenset[bytes]:
    bases = {word for text in _CLASS.findall(data) for word in _WORD.findall(text)}
    return frozenset(bases.union(*(_real_names(data, used) for used in bases)))


def _real_names(data: bytes, used: bytes) -> Iterator[bytes]:
    """Yield what a name may stand for by ``import … as`` and by assignment; more does no harm."""
    if b" as " + used in data:
        for found in re.finditer(rb" as %b\b" % used, data):
            yield from _WORD.findall(data[max(0, found.start() - 99) : found.start()])[-1:]
    if used + b" = " in data:
        yield from re.findall(rb"(?m)%b = (?:\w+\.)*(\w+)\s*$" % used, data)


def definers(world: World, method: str, near: tuple[str, ...]) -> tuple[Symbol, ...]:
    """Return every class that defines a method of that name."""
    wanted = f"def {method}(".encode()
    key = (method, near if world.tree.remote else ())
    if key not in world.definers:
        world.definers[key] = tuple(
            found
            for path, data in files_mentioning(world, frozenset((method.encode(),)), near)
            if wanted in data
            for _, found in classes_in(world, path)
            if method in found.cls.methods
        )
    return world.definers[key]


def beside(world: World, found: Symbol, method: str) -> Symbol | None:
    """Return the one class beside a mixin, in all of its subclasses, that has a method."""
    owners = {
        None if owner is None else owner[0]
        for other in subclasses(world, found)
        for owner in (lineage(world, other).owner(method),)
    }
    return owners.pop() if len(owners) == 1 else None


def class_at(world: World, path: str, scope: CodeScope | None) -> Symbol | None:
    """Return the class whose body a scope is, ``None`` inside functions."""
    if scope is None or not scope.is_class:
        return None
    return class_named(world, path, scope.name, getattr(scope.node, "lineno", 0))


def class_named(world: World, path: str, name: str, line: int) -> Symbol | None:
    """Return the class of a file that has a dotted name and starts on a line, ``None`` for one in a function."""
    return next((f for n, f in classes_in(world, path) if (n, f.cls.line) == (name, line)), None)
