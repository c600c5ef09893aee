"""Names of a tree's modules, followed through imports to where they are defined. Nothing is imported.

A name may stand for one thing when vLLM runs and for another to a type checker (``if TYPE_CHECKING:
from … import LoadFormats`` with ``LoadFormats = str`` in the ``else``): both can be asked for.
"""

import ast
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from vllm_mods.base.tree import Tree
from vllm_mods.fit.shapes import Import
from vllm_mods.fit.signatures import dotted, imports_of, tests_typing
from vllm_mods.fit.world import absolute
from vllm_mods.formats import syntax_tree

# How far a chain of re-exports or of base classes is followed.
_DEPTH = 32
_Node_co = TypeVar("_Node_co", bound=ast.AST, covariant=True)


class SourcePlace(NamedTuple, Generic[_Node_co]):
    """Something in the tree: ``node`` in the file at ``path``."""

    path: str
    node: _Node_co


AnyPlace = SourcePlace[ast.AST]
ClassPlace = SourcePlace[ast.ClassDef]
FunctionPlace = SourcePlace[ast.FunctionDef]
_Binding = ast.stmt | Import


class _SourceModule(NamedTuple):
    runtime: dict[str, _Binding]
    typing: dict[str, _Binding]
    stars: list[str]


class ModuleSources:
    """The parsed modules of one tree; each is read when it is asked for, and once."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._bases: dict[ClassPlace, tuple[ClassPlace, ...]] = {}
        self._modules: dict[str, _SourceModule | None] = {}
        self._parsed: dict[str, ast.Module | None] = {}

    def parse(self, path: str) -> ast.Module | None:
        """Return a file's syntax tree, None if it is missing or no Python. Raises ``TreeError``."""
        if path not in self._parsed:
            data = self.tree.read(path)
            self._parsed[path] = None if data is None else syntax_tree.module(data)
        return self._parsed[path]

    def nodes(self, path: str) -> Iterator[ast.AST]:
        """Yield all nodes of a file; none if there is no such file or it is no Python."""
        parsed = self.parse(path)
        return ast.walk(parsed) if parsed else iter(())

    def file_of(self, dotted: str) -> str | None:
        """Return the path of a module by its dotted name, ``None`` if it is not in the tree."""
        if dotted.partition(".")[0] != "vllm":
            return None  # beside vLLM is what people installed, not what the release says
        stem = dotted.replace(".", "/")
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if self.parse(path) is not None:
                return path
        return None

    def find(self, path: str, name: str | None, *, typing: bool = False) -> AnyPlace | None:
        """Find what a name, dotted or not, means at the module level of ``path``.

        With ``typing`` what a type checker sees comes first. ``None`` if it is not in the tree.
        """
        if not name:
            return None
        head, *rest = name.split(".")
        place = self._look_up(path, head, typing=typing)
        for part in rest:
            if isinstance(place, str):
                place = self._look_up(place, part, typing=typing)
            elif place is not None and isinstance(place.node, ast.ClassDef):
                inner = next((one for one in place.node.body if part in _bound_names(one)), None)
                place = None if inner is None else SourcePlace(place.path, inner)
            else:
                return None
        return place if isinstance(place, SourcePlace) else None

    def find_class(self, path: str, name: str | None) -> ClassPlace | None:
        """Find the class that a name means; ``None`` if it means something else, or nothing."""
        return as_class(self.find(path, name))

    def value(self, path: str, name: str | None) -> ast.expr | None:
        """Return the expression that a name is assigned, ``None`` if there is none in the tree."""
        place = self.find(path, name)
        return getattr(place.node, "value", None) if place is not None else None

    def bases(self, cls: ClassPlace) -> tuple[ClassPlace, ...]:
        """Return a class and the classes of the tree that it inherits from, in search order."""
        if cls not in self._bases:
            order: dict[ClassPlace, None] = {}
            pending = [cls]
            while pending and len(order) < _DEPTH:
                base = pending.pop(0)
                if base not in order:
                    order[base] = None
                    above = (self.find_class(base.path, dotted(named)) for named in base.node.bases)
                    pending = [*filter(None, above), *pending]
            self._bases[cls] = tuple(order)
        return self._bases[cls]

    def methods(self, cls: ClassPlace) -> Iterator[FunctionPlace]:
        """Yield the methods of a class and of its bases, in search order."""
        for base in self.bases(cls):
            for member in base.node.body:
                if isinstance(member, ast.FunctionDef):
                    yield SourcePlace(base.path, member)

    def _look_up(
        self, path: str, name: str, *, typing: bool, depth: int = 0
    ) -> AnyPlace | str | None:
        """Return where a name is defined, or the path of the module that it stands for."""
        module = self._module(path)
        if module is None or depth > _DEPTH:
            return None
        both = (module.typing, module.runtime) if typing else (module.runtime, module.typing)
        binding = both[0].get(name, both[1].get(name))
        if binding is None:
            for star in module.stars:
                target = self.file_of(star)
                place = target and self._look_up(target, name, typing=typing, depth=depth + 1)
                if place:
                    return place
            folder = path.removesuffix("/__init__.py")
            return None if folder == path else self.file_of(f"{folder}/{name}".replace("/", "."))
        if not isinstance(binding, Import):
            return SourcePlace(path, binding)
        named = name if binding.whole else absolute(path, binding.level, binding.module)
        target = self.file_of(named)
        if target is None or binding.name is None:
            return target
        return self._look_up(target, binding.name, typing=typing, depth=depth + 1)

    def _module(self, path: str) -> _SourceModule | None:
        if path not in self._modules:
            module = None
            if (node := self.parse(path)) is not None:
                module = _SourceModule({}, {}, [])
                _collect(node.body, path, module.runtime, module)
            self._modules[path] = module
        return self._modules[path]


def as_class(at: AnyPlace | None) -> ClassPlace | None:
    """Return a place as that of a class, ``None`` if it is none."""
    if at is None or not isinstance(at.node, ast.ClassDef):
        return None
    return SourcePlace(at.path, at.node)


def last_name(node: ast.AST) -> str:
    """Return ``c`` for ``a.b.c`` and for a call of it, ``""`` for what is no name."""
    name = dotted(node.func if isinstance(node, ast.Call) else node) or ""
    return name.rpartition(".")[2]


def text_of(node: ast.AST | None) -> str | None:
    """Return the text that an expression is, ``None`` for any other one."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _collect(
    body: Iterable[ast.stmt], path: str, into: dict[str, _Binding], module: _SourceModule
) -> None:
    for node in body:
        if isinstance(node, ast.If):
            _collect(node.body, path, module.typing if tests_typing(node) else into, module)
            _collect(node.orelse, path, into, module)
        elif isinstance(node, ast.Try):
            for handler in node.handlers:
                _collect(handler.body, path, into, module)
            _collect([*node.body, *node.orelse], path, into, module)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name, alias in imports_of(node):
                if alias.name == "*":
                    module.stars.append(absolute(path, alias.level, alias.module))
                else:
                    into[name] = alias
        else:
            into.update((name, node) for name in _bound_names(node))


def _bound_names(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that one statement, other than an import, binds."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return (node.name,)
    if isinstance(node, ast.Assign):
        return tuple(target.id for target in node.targets if isinstance(target, ast.Name))
    # `x: T = …`, `type X = …`
    target = getattr(node, "target", None) or getattr(node, "name", None)
    return (target.id,) if isinstance(target, ast.Name) else ()
