"""One state of a tree, before or after the patch: its modules and what their names mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from hashlib import sha256
from typing import Any, Concatenate, ParamSpec, TypeVar

from vllm_mods.base.tree import Tree
from vllm_mods.fit.overlay import LaidOut
from vllm_mods.fit.shapes import Binding, Class, Import, Lookup, Module, Symbol, Value, words
from vllm_mods.fit.summary import lazy_names, summarize

# Modules that a build makes: a source archive has none of them.
_BUILT = re.compile(
    r"(?:^|\.)(?:_\w*C(?:_\w+)?|_version|_build_info|version_info|commit_id|cumem_allocator|spinloop"
    r"|vllm_flash_attn|third_party|_deep_gemm\w*|\w+_pb2(?:_grpc)?|_\w*_rs|_rust\w*|_vllm_fa\w*)(?:\.|$)"
)
_MODULE_NAMES = words(
    "__name__ __file__ __doc__ __package__ __path__ __spec__ __loader__ __dict__ __all__ "
    "__builtins__ __cached__ __annotations__"
)
_REQUIRES = re.compile(rb"^[Rr]equires-[Pp]ython\s*[:=]\s*\"?([^\"\n]+)", re.MULTILINE)
# How far a chain of re-exports is followed.
_DEPTH = 12


@dataclass(slots=True)
class SummaryCache:
    """What was derived from files, by their sha256, for many trees: summaries, trees as folders, and the type checker's words at an origin."""

    modules: dict[bytes, Module | None] = field(default_factory=dict)
    laid_out: LaidOut = field(default_factory=LaidOut, compare=False)
    said: dict[object, frozenset[tuple[str, ...]]] = field(default_factory=dict)


_MISSING = Lookup(exists=False)
_OPAQUE = Lookup(exists=True, symbols=(Symbol(),))
_CYCLE = Lookup(exists=None, why="the modules import each other")


_P = ParamSpec("_P")
_T = TypeVar("_T")


def remembered(ask: Callable[Concatenate[World, _P], _T]) -> Callable[Concatenate[World, _P], _T]:
    """Ask something of a world once for the same arguments, given by position, and keep the answer with it."""

    @wraps(ask)
    def asked(world: World, /, *args: _P.args, **options: _P.kwargs) -> _T:
        key = (ask, args)
        if key not in world.answers:
            world.answers[key] = ask(world, *args, **options)
        answer: _T = world.answers[key]
        return answer

    return asked


class World:
    """A tree with some files replaced; ``files`` are the replacements, ``None`` for a deletion."""

    def __init__(
        self,
        tree: Tree,
        files: Mapping[str, bytes | None],
        cache: SummaryCache,
        texts: dict[str, bytes | None] | None = None,
    ) -> None:
        self.tree = tree
        # What was read already: the states before and after share it.
        self.texts = {} if texts is None else texts
        self.files = files
        self.cache = cache
        self.roots = {"vllm"} | {path.partition("/")[0].removesuffix(".py") for path in files}
        self.consulted: set[str] = set()
        self._paths: dict[str, frozenset[str]] = {}
        self._looked: dict[tuple[str, str], Lookup] = {}
        self.answers: dict[object, Any] = {}
        self.origin: World | None = None
        """The same files beside the tree that they were made for, where only what is news counts."""

    # --- files

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file as this state has it, and note that an answer rests on it."""
        self.consulted.add(path)
        return self.glance(path)

    def glance(self, path: str) -> bytes | None:
        """Return the bytes of a file that a search only passes over."""
        if path in self.files:
            return self.files[path]
        if path not in self.texts:
            self.texts[path] = self.tree.read(path)
        return self.texts[path]

    def row(self, path: str, line: int) -> bytes:
        """Return a line of a file, by its 1-based number, ``b""`` where there is none; a search only passes over it."""
        return b"".join(self._rows(path)[line - 1 : line])

    @remembered
    def _rows(self, path: str) -> list[bytes]:
        return (self.glance(path) or b"").splitlines()

    def paths(self, under: str = "vllm") -> frozenset[str]:
        """Return every file below a folder of the site root."""
        if under not in self._paths:
            paths = set(self.tree.paths(under))
            for path, data in self.files.items():
                if path.startswith(f"{under}/"):
                    paths.discard(path) if data is None else paths.add(path)
            self._paths[under] = frozenset(paths)
        return self._paths[under]

    @cached_property
    def python(self) -> tuple[int, int] | None:
        """The lowest Python that the tree's metadata allows, ``None`` if it says nothing."""
        places = ["PKG-INFO", "pyproject.toml"]
        if self.tree.version is not None:
            places.insert(0, f"vllm-{self.tree.version}.dist-info/METADATA")
        for place in places:
            match = _REQUIRES.search(self.tree.read(place) or b"")
            if lowest := match and re.search(rb">=?\s*3\.(\d+)", match[1]):
                return 3, int(lowest[1])
        return None

    @remembered
    def module(self, path: str) -> Module | None:
        """Return the summary of a file; ``None`` if there is none or it does not parse."""
        data = self.read(path)
        if data is None:
            return None
        digest = sha256(data).digest()
        if digest not in self.cache.modules:
            self.cache.modules[digest] = summarize(data)
        return self.cache.modules[digest]

    # --- modules

    @remembered
    def locate(self, dotted: str) -> Lookup:
        """Find a module by its dotted name; the path of a folder without ``__init__.py`` ends in ``/``."""
        root = dotted.partition(".")[0]
        if root not in self.roots:
            outside = (Symbol(external=dotted),)
            return Lookup(exists=None, symbols=outside, why=f"{root} is not in the tree")
        stem = dotted.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if path in self.paths(root) or self.files.get(path) is not None:
                return Lookup(exists=True, symbols=(Symbol(module=path),))
        if any(path.startswith(f"{stem}/") for path in self.paths(root)):
            return Lookup(exists=True, symbols=(Symbol(module=f"{stem}/"),))
        beside = (path for path in self.paths(root) if path.startswith(f"{stem}."))
        if any(path.endswith((".so", ".pyd", ".pyi")) for path in beside):
            return _OPAQUE
        if _BUILT.search(dotted):
            return Lookup(exists=None, why=f"{dotted} is generated when vLLM is built")
        return _MISSING

    # --- names

    def lookup(self, path: str, name: str, depth: int = 0) -> Lookup:
        """Find a module-level name, through re-exports. ``path`` may be a folder (``…/``)."""
        if depth > _DEPTH:
            return _CYCLE
        key = (path, name)
        if key not in self._looked:
            self._looked[key] = _CYCLE  # for whoever asks on the way
            self._looked[key] = self._lookup(path, name, depth)
        return self._looked[key]

    def _lookup(self, path: str, name: str, depth: int) -> Lookup:
        if path.endswith("/"):
            return self._submodule(path, name)
        module = self.module(path)
        if module is None:
            return Lookup(exists=None, why=f"{path} does not parse")
        if name in module.names:
            known = [one for each in module.names[name] for one in self._follow(path, each, depth)]
            return Lookup(exists=True, symbols=tuple(dict.fromkeys(known)) or (Symbol(),))
        if name in _MODULE_NAMES:
            return _OPAQUE
        if path.endswith("/__init__.py"):
            below = self._submodule(path.removesuffix("__init__.py"), name)
            if below.exists is not False:
                return below
        return self._through_stars(path, module, name, depth)

    def _submodule(self, folder: str, name: str) -> Lookup:
        return self.locate(f"{folder}{name}".replace("/", "."))

    def _through_stars(self, path: str, module: Module, name: str, depth: int) -> Lookup:
        why = ""
        for star in module.stars:
            star_path = self.locate(absolute(path, star.level, star.module)).module
            if star_path is None:
                why = why or f"{path} imports * from {star.module}, which is not in the tree"
                continue
            source = self.module(star_path)
            exports = source.exports if source else None
            hidden = name not in exports if exports is not None else name.startswith("_")
            answer = _MISSING if hidden else self.lookup(star_path, name, depth + 1)
            if answer.exists:
                return answer
            why = why or answer.why
        if module.lazy:
            strings, only_looks_up = lazy_names(self.read(path) or b"")
            if name in strings:
                return _OPAQUE
            if not only_looks_up:
                why = why or f"{path} makes names in __getattr__"
        if module.dynamic:
            why = why or f"{path} creates names at run time"
        return Lookup(exists=None, why=why) if why else _MISSING

    def _follow(self, path: str, binding: Binding, depth: int) -> tuple[Symbol, ...]:
        if isinstance(binding, Import):
            return self.imported(path, binding, depth).symbols or (Symbol(),)
        alias = binding.alias if isinstance(binding, Value) and depth < _DEPTH else None
        symbols: tuple[Symbol, ...] = ()
        if alias and "(" not in alias.partition(".")[0]:
            symbols = self.resolve(path, alias, depth + 1).symbols
        return symbols or (Symbol(path=path, binding=binding),)

    def imported(self, path: str, alias: Import, depth: int = 0) -> Lookup:
        """Find what an import in ``path`` binds."""
        target = absolute(path, alias.level, alias.module)
        if alias.name is None:
            return self.locate(target.partition(".")[0] if alias.whole else target)
        where = self.locate(target)
        if where.exists is not True:
            external = where.symbols[0].external if where.symbols else None
            known = Symbol(external=f"{external}.{alias.name}") if external else Symbol()
            return Lookup(exists=where.exists, symbols=(known,), why=where.why)
        return self.lookup(where.module, alias.name, depth + 1) if where.module else _OPAQUE

    def resolve(self, path: str, dotted: str, depth: int = 0) -> Lookup:
        """Find what a dotted name means at the module level of ``path``."""
        head, *rest = dotted.split(".")
        answer = self.lookup(path, head, depth)
        for part in rest:
            members = (self.member(one, part, depth + 1).symbols for one in answer.symbols)
            symbols = tuple(one for each in members for one in each)
            if not symbols:
                return Lookup(exists=None, why=f"{dotted} is not a plain name")
            answer = Lookup(exists=answer.exists, symbols=symbols)
        return answer

    def member(self, of: Symbol, name: str, depth: int = 0) -> Lookup:
        """Find an attribute of a module, or a class or method in a class."""
        if of.module:
            return self.lookup(of.module, name, depth)
        if of.external:
            return Lookup(exists=None, symbols=(Symbol(external=f"{of.external}.{name}"),))
        if isinstance(of.binding, Class):
            inner = (of.binding.nested.get(name), *of.binding.methods.get(name, ()))
            if symbols := tuple(Symbol(path=of.path, binding=one) for one in inner if one):
                return Lookup(exists=True, symbols=symbols)
        return Lookup(exists=None, why="the value is not a module or class")


def module_stem(path: str) -> str:
    """Return the last word of the name of a module."""
    return path.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")[2]


def absolute(path: str, level: int, module: str) -> str:
    """Return the absolute dotted name of a module named in the file at ``path``."""
    if level == 0:
        return module
    parts = path.removesuffix(".py").split("/")
    package = parts[:-1][: len(parts) - level] if level <= len(parts) else []
    return ".".join([*package, module]) if module else ".".join(package)
