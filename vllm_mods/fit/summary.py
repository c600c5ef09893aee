"""From the bytes of a module to its summary, with the standard library's ``ast``."""

import ast
import re
from functools import lru_cache

from vllm_mods.fit.classes import class_of
from vllm_mods.fit.shapes import Binding, Import, Module, Value
from vllm_mods.fit.signatures import (
    bindings,
    children,
    dotted,
    every,
    function_of,
    imports_of,
    statements,
)
from vllm_mods.formats import syntax_tree

_GLOBAL = re.compile(rb"^[ \t]+global (\w+(?:, \w+)*)[ \t]*(?:#.*)?$", re.MULTILINE)
# Generated modules hand ``globals()`` to who fills it: protobuf's ``_pb2``. Who returns something,
# ``LazyLoader("torch", globals(), "torch")``, makes that one name.
_MAKES_NAMES = re.compile(
    rb"^[ \t]*(?:\w+ = globals\(\)$|globals\(\)(?:\.update|\[[^]\n]*\] =)|exec\(|(?:\w+ = |setattr\()?sys\.modules\[__name__\]|[\w.]+\([^\n]*globals\(\))",
    re.MULTILINE,
)
# That of a module only replaces what is there.
_SETTER = re.compile(rb"^def __setattr__\(.*?(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
_LISTS = ast.List | ast.Tuple | ast.Set | ast.BinOp


def summarize(data: bytes) -> Module | None:
    """Summarize a file; ``None`` if it does not parse, or is nested too deeply for that."""
    node = syntax_tree.module(data)
    try:
        return None if node is None else _ModuleReader(node, data).module()
    except RecursionError:
        return None


# Few modules have a ``__getattr__``, and of those few are asked for a name that they do not bind.
@lru_cache(maxsize=8)
def lazy_names(data: bytes) -> tuple[frozenset[str], bool]:
    """Return the strings of a module with a ``__getattr__``, and whether that only looks names up."""
    tree = syntax_tree.module(data) or ast.Module([], [])
    strings = (node.value for node in every(tree) if isinstance(node, ast.Constant))
    return frozenset(value for value in strings if isinstance(value, str)), _looks_up(tree)


class _ModuleReader:
    """Collects the names of a module body."""

    def __init__(self, node: ast.Module, data: bytes) -> None:
        self.node = node
        self.data = data
        self.names: dict[str, list[Binding]] = {}
        self.stars: list[Import] = []

    def module(self) -> Module:
        for node, typing_only in statements(self.node.body):
            self._statement(node, typing_only=typing_only)
        dynamic = self._globals()
        return Module(
            names={name: tuple(bindings) for name, bindings in self.names.items()},
            stars=tuple(self.stars),
            exports=self._exports(),
            lazy="__getattr__" in self.names,
            dynamic=dynamic,
        )

    def _bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)

    def _statement(self, node: ast.AST, *, typing_only: bool) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(node.name, function_of(node))
            case ast.ClassDef():
                self._bind(node.name, class_of(node))
            case ast.Import() | ast.ImportFrom():
                for name, alias in imports_of(node, typing_only=typing_only):
                    if name == "*":
                        self.stars.append(alias)
                    else:
                        self._bind(name, alias)
            case ast.ExceptHandler(name=str(name)):
                self._bind(name, Value(node.lineno))
            case _:
                alias_of = dotted(node.value) if isinstance(node, ast.Assign) else None
                for part in children(node):
                    if not isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
                        line = getattr(node, "lineno", getattr(part, "lineno", 0))
                        named = alias_of if isinstance(part, ast.Name) else None
                        for name, _ in bindings(part):
                            self._bind(name, Value(line, named, typing_only))

    def _exports(self) -> frozenset[str] | None:
        """Return what ``__all__`` lists; ``None`` where there is none, or only the run knows it."""
        texts: set[str] = set()
        for node, _ in statements(self.node.body):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id="__all__")], value=listed)
                    | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as listed)
                    | ast.AugAssign(target=ast.Name(id="__all__"), value=listed)
                    | ast.Expr(ast.Call(ast.Attribute(ast.Name(id="__all__")), args=[listed]))
                ):
                    parts = [part for part in every(listed) if not isinstance(part, _LISTS)]
                    plain = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
                    if len(plain) != len(parts):
                        return None
                    texts.update(plain)
                case _:
                    pass
        return frozenset(texts) or None

    def _globals(self) -> bool:
        """Bind what functions declare global; tell whether names are made at run time."""
        for match in _GLOBAL.finditer(self.data):
            line = self.data.count(b"\n", 0, match.start(1)) + 1
            for name in match[1].decode().split(", "):
                self._bind(name, Value(line))
        return _MAKES_NAMES.search(_SETTER.sub(b"", self.data)) is not None


def _looks_up(tree: ast.Module) -> bool:
    """Tell whether ``__getattr__`` compares the name with constants, or looks for it in a table, and nothing else."""
    for node in every(tree):
        match node:
            case ast.FunctionDef(
                name="__getattr__", args=ast.arguments(args=[ast.arg(arg=name), *_])
            ) if name != "self":
                text = ast.unparse(node)
                compares = re.search(rf"\n +(?:el)?if {name} (?:==|(?:not )?in) (?!globals)", text)
                reads = re.search(rf"\bgetattr\(.*, {name}[,)]", text)
                return "raise " in text and compares is not None and reads is None
            case _:
                pass
    return False
