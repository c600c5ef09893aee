"""Searches of the tree: which files mention a name, by their text, and which classes stand below another one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import takewhile

from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.shapes import Class, Function
from vllm_mods.fit.symbols import Symbol, Thing
from vllm_mods.fit.walk import CodeScope
from vllm_mods.fit.world import World, remembered

# How many files of a remote tree a search may read.
REMOTE_READS = 24
# Where vLLM calls into its models, layers and quantization methods.
_CALLERS = (
    "vllm/config/vllm.py",
    "vllm/config/model.py",
    "vllm/model_executor/model_loader/weight_utils.py",
    "vllm/model_executor/model_loader/utils.py",
    "vllm/model_executor/model_loader/base_loader.py",
    "vllm/model_executor/model_loader/default_loader.py",
    "vllm/v1/worker/gpu_model_runner.py",
    "vllm/v1/worker/gpu_worker.py",
    "vllm/model_executor/layers/linear.py",
    "vllm/model_executor/layers/fused_moe/layer.py",
    "vllm/model_executor/layers/quantization/__init__.py",
)

# The bases of a class; of text that only looks like one a superset is made.
_CLASS = re.compile(rb"class\s+\w+[^(:\n]*\((.*?)\)\s*:", re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_]\w*")


def _common(first: str, other: str) -> int:
    """Count the folders that two paths have in common."""
    pairs = zip(first.split("/"), other.split("/"), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def candidates(world: World, near: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Return the Python files that a search reads, and whether these are all there are.

    A remote tree is read file by file over the network, so there only the files where
    vLLM's callers live are asked: beside ``near``, then the configuration, the model
    loader and the worker.
    """
    every = _python_files(world)
    if not world.tree.remote:
        return every, True
    near = tuple(near)
    folders = tuple(path.rpartition("/")[0] for path in near)

    def distance(path: str) -> tuple[int, int, str]:
        folder = path.rpartition("/")[0]
        for rank, wanted in enumerate(_CALLERS):
            if path.startswith(wanted):
                return (0 if rank < 2 else 1, rank, path)
        if folder in folders:
            return (2, 0, path)
        shared = max((_common(folder, other) for other in folders), default=0)
        return (3, -shared, path)

    ranked = [path for path in near if path in every]
    ranked += [path for path in sorted(every, key=distance) if path not in ranked]
    chosen = tuple(ranked[:REMOTE_READS])
    return chosen, len(chosen) == len(every)


@remembered
def _python_files(world: World) -> tuple[str, ...]:
    paths = (path for root in world.roots for path in world.paths(root) if path.endswith(".py"))
    return tuple(sorted(paths))


def files_mentioning(
    world: World, names: Iterable[str], near: Iterable[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield each file (and its bytes) that mentions one of some identifiers."""
    words = frozenset(name.encode() for name in names)
    for path in candidates(world, near)[0]:
        data = world.glance(path)
        if data is None:
            continue
        if len(words) <= 24:
            is_named = any(word in data for word in words)
        else:
            is_named = not words.isdisjoint(_WORD.findall(data))
        if is_named:
            world.consulted.add(path)
            yield path, data


def is_mentioned(world: World, name: str, how: re.Pattern[bytes], near: Iterable[str] = ()) -> bool:
    """Tell whether a file mentions a name in some way."""
    return any(how.search(data) for _, data in files_mentioning(world, (name,), near))


# --- classes


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


@remembered
def subclasses(world: World, symbol: Symbol) -> tuple[Symbol, ...]:
    """Return the classes below a class, as far as a text search for its name leads to them."""
    heirs = _heirs(world, symbol.path if world.tree.remote else "")
    known: dict[Symbol, None] = {}
    queue = [symbol]
    while queue:
        name = queue.pop().cls.name.encode()
        for path in heirs.get(name, ()):
            world.consulted.add(path)
            for _, other in classes_in(world, path):
                if other == symbol or other in known:
                    continue
                if symbol in lineage(world, other).classes:
                    known[other] = None
                    queue.append(other)
    return tuple(known)


def overriding(world: World, thing: Thing) -> list[Function]:
    """Return the methods of subclasses that may be there in place of one."""
    below = () if thing.exact or thing.on is None else subclasses(world, thing.on)
    return [f for one in below for f in one.cls.methods.get(thing.function.name, ())]


@remembered
def _heirs(world: World, near: str) -> dict[bytes, list[str]]:
    """Return the files with a class that has a base of some name, under whatever alias."""
    heirs: dict[bytes, list[str]] = {}
    for path in candidates(world, (near,))[0]:
        data = world.glance(path) or b""
        digest, known = sha256(data).digest(), world.cache.bases
        if digest not in known:
            known[digest] = _bases(data)
        for name in known[digest]:
            heirs.setdefault(name, []).append(path)
    return heirs


def _bases(data: bytes) -> frozenset[bytes]:
    bases = {word for text in _CLASS.findall(data) for word in _WORD.findall(text)}
    return frozenset(bases.union(*(_real_names(data, used) for used in bases)))


def _real_names(data: bytes, used: bytes) -> Iterator[bytes]:
    """Yield what a name may stand for by ``import … as`` and by assignment; more does no harm."""
    if b" as " + used in data:
        for match in re.finditer(rb" as %b\b" % used, data):
            yield from _WORD.findall(data[max(0, match.start() - 99) : match.start()])[-1:]
    if used + b" = " in data:
        yield from re.findall(rb"(?m)%b = (?:\w+\.)*(\w+)\s*$" % used, data)


@remembered
def definers(world: World, method: str, near: tuple[str, ...]) -> tuple[Symbol, ...]:
    """Return every class that defines a method of that name."""
    wanted = f"def {method}(".encode()
    return tuple(
        found
        for path, data in files_mentioning(world, (method,), near)
        if wanted in data
        for _, found in classes_in(world, path)
        if method in found.cls.methods
    )


def beside(world: World, symbol: Symbol, method: str) -> Symbol | None:
    """Return the one class beside a mixin, in all of its subclasses, that has a method."""
    owners = {
        None if owner is None else owner[0]
        for other in subclasses(world, symbol)
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
