"""Searches of the tree: which files mention a name, by their text, and which classes stand below another one."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.shapes import Class, Import, Symbol
from vllm_mods.fit.walk import CodeScope, local_names
from vllm_mods.fit.world import World, remembered

# The bases of a class; of text that only looks like one a superset is made.
_CLASS = re.compile(rb"class\s+\w+[^(:\n]*\((.*?)\)\s*:", re.DOTALL)
WORD = re.compile(rb"[A-Za-z_]\w*")
_BLANKS = bytes(byte if re.match(rb"\w", bytes((byte,))) else ord(" ") for byte in range(256))


@remembered
def python_files(world: World) -> tuple[str, ...]:
    """Return the paths of all Python of the tree, and of what else the patch changes."""
    paths = (path for root in world.roots for path in world.paths(root) if path.endswith(".py"))
    return tuple(sorted(paths))


@remembered
def _mentioning(world: World, names: tuple[str, ...]) -> list[str]:
    words = [name.encode() for name in names]
    texts = ((path, world.glance(path) or b"") for path in python_files(world))
    return [path for path, data in texts if any(map(data.__contains__, words))]


def files_mentioning(world: World, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield each file (and its bytes) that mentions one of some identifiers."""
    for path in _mentioning(world, tuple(names)):
        world.consulted.add(path)
        yield path, world.glance(path) or b""


def words_mentioned(world: World, words: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each file with those of some identifiers that it mentions: many are sought in the time that few take."""
    sought = frozenset(map(str.encode, words))
    if len(words) <= 24:
        files = files_mentioning(world, words)
    else:
        files = ((path, world.glance(path) or b"") for path in python_files(world))
    for path, data in files:
        if found := sought.intersection(data.translate(_BLANKS).split()):
            world.consulted.add(path)
            yield path, frozenset(map(bytes.decode, found))


def is_mentioned(world: World, name: str, how: re.Pattern[bytes]) -> bool:
    """Tell whether a file mentions a name in some way."""
    return any(how.search(data) for _, data in files_mentioning(world, (name,)))


def is_composed(world: World, name: str) -> bool:
    """Tell whether a file may put a name together and look it up: ``getattr(x, f"get_{what}")``."""
    words = name.strip("_").encode().split(b"_")
    ends = words[0], words[-1]
    parts = re.compile(rb"[\"']_?%b_(?:\w*_)?[\"'{%%]|[\"'}s]_(?:\w*_)?%b[\"']" % ends)
    return any(parts.search(data) for _, data in files_mentioning(world, ("getattr", "setattr")))


def times_mentioned(world: World, name: str, how: re.Pattern[bytes]) -> int:
    """Count how often a name is mentioned in some way."""
    return sum(len(how.findall(data)) for _, data in files_mentioning(world, (name,)))


def defines_plainly(world: World, path: str, name: str) -> bool:
    """Find a plain definition by its text: parsing a large module costs a hundred times more."""
    data = None if path.endswith("/") else world.read(path)
    if data is None:
        return False
    word = re.escape(name.encode())
    pattern = rb"^(?:(?:async )?def|class) %b\b|^%b(?::[^\n=]+)? = " % (word, word)
    return re.search(pattern, data, re.MULTILINE) is not None


def meant_in(world: World, path: str, scope: CodeScope, name: str) -> tuple[Symbol, ...]:
    """Return what a dotted name may mean in a scope of a file; of local names, only imports are known."""
    head, *rest = name.split(".")
    bound = next((b for one in scope.in_function() if (b := local_names(one.node).get(head))), None)
    if bound is None:
        return world.resolve(path, name).symbols
    imports = (binding for binding in bound if isinstance(binding, Import))
    symbols = [symbol for binding in imports for symbol in world.imported(path, binding).symbols]
    for part in rest:
        symbols = [inner for symbol in symbols for inner in world.member(symbol, part).symbols]
    return tuple(symbols)


# --- classes


def classes_in(world: World, path: str) -> Iterator[tuple[str, Symbol]]:
    """Yield every class of a module that has a name at module level, nested ones dotted."""
    module = world.module(path)
    if module is None:
        return
    named = ((name, one) for name, bindings in module.names.items() for one in bindings)
    stack = [(name, one) for name, one in named if isinstance(one, Class)]
    while stack:
        name, binding = stack.pop(0)
        yield name, Symbol(path=path, binding=binding)
        stack.extend((f"{name}.{inner}", c) for inner, c in binding.nested.items())


@remembered
def subclasses(world: World, symbol: Symbol) -> tuple[Symbol, ...]:
    """Return the classes below a class, as far as a text search for its name leads to them."""
    known: dict[Symbol, None] = {}
    queue = [symbol]
    while queue:
        name = queue.pop().cls.name.encode()
        for path in _files_with_heirs(world, name):
            world.consulted.add(path)
            for _, other in classes_in(world, path):
                if other == symbol or other in known:
                    continue
                if symbol in lineage(world, other).classes:
                    known[other] = None
                    queue.append(other)
    return tuple(known)


@remembered
def _files_with_heirs(world: World, name: bytes) -> list[str]:
    """Return the files with a class that has a base of some name, under whatever alias."""
    files = ((path, world.glance(path) or b"") for path in python_files(world))
    return [path for path, data in files if name in data and name in _bases(data)]


# A class has several above it, and each is asked for.
@lru_cache(maxsize=512)
def _bases(data: bytes) -> frozenset[bytes]:
    bases = {word for text in _CLASS.findall(data) for word in WORD.findall(text)}
    return frozenset().union(*(real_names(data, used) for used in bases))


@lru_cache(maxsize=4096)
def real_names(data: bytes, used: bytes) -> frozenset[bytes]:
    """Return a name, and what it may stand for by ``import … as`` and by assignment; more does no harm."""
    names = {used}
    if b" as " + used in data:
        for match in re.finditer(rb" as %b\b" % used, data):
            names.update(WORD.findall(data[max(0, match.start() - 99) : match.start()])[-1:])
    if used + b" = " in data:
        names.update(re.findall(rb"(?m)%b = (?:\w+\.)*(\w+)\s*$" % used, data))
    return frozenset(names)


@remembered
def definers(world: World, method: str) -> tuple[Symbol, ...]:
    """Return every class that defines a method of that name."""
    found = _classes(world, method, rb"def %b\(")
    return tuple(symbol for _, symbol in found if method in symbol.cls.methods)


@remembered
def classes_named(world: World, name: str) -> tuple[Symbol, ...]:
    """Return every class of the tree, of whatever module, that has a name."""
    found = _classes(world, name, rb"(?m)^[ \t]*class\s+%b\b")
    return tuple(symbol for dotted, symbol in found if dotted.rpartition(".")[2] == name)


def _classes(world: World, name: str, wanted: bytes) -> Iterator[tuple[str, Symbol]]:
    """Yield the classes of the files that have a name in some way."""
    for path, data in files_mentioning(world, (name,)):
        if re.search(wanted % name.encode(), data):
            yield from classes_in(world, path)


def class_at(world: World, path: str, scope: CodeScope | None) -> Symbol | None:
    """Return the class whose body a scope is, ``None`` inside functions."""
    if scope is None or not isinstance(scope.node, ast.ClassDef):
        return None
    return class_named(world, path, scope.name, scope.node.lineno)


def class_named(world: World, path: str, name: str, line: int) -> Symbol | None:
    """Return the class of a file that has a dotted name and starts on a line, ``None`` for one in a function."""
    return next((f for n, f in classes_in(world, path) if (n, f.cls.line) == (name, line)), None)
