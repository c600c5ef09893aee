"""What an annotation allows: ``str | Literal["a", "b"] | None`` taken apart, through aliases."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.formats import syntax_tree
from vllm_mods.serve.source import ModuleSources, SourcePlace, dotted

_BUILTINS = frozenset({"bool", "int", "float", "str", "dict", "list", "tuple", "set", "None"})
_CAPITAL = {"Dict": "dict", "List": "list", "Tuple": "tuple", "Set": "set"}
# What only wraps the type that it says something about.
_WRAPPERS = frozenset(
    {"Annotated", "SkipValidation", "Final", "InitVar", "Required", "NotRequired"}
)
_DEPTH = 12


class Hint(NamedTuple):
    """One of the types of a union.

    ``kind`` is ``builtin`` (``name`` says which), ``literal`` (``values``), ``class`` (``place``) or
    ``other``: known to Python only, such as ``Any`` or a class from outside the tree. ``args`` are
    what stands in brackets behind a builtin.
    """

    kind: str
    name: str = ""
    values: tuple[object, ...] = ()
    args: tuple[SourcePlace, ...] = ()
    place: SourcePlace | None = None


def hints(
    sources: ModuleSources, annotation: SourcePlace, *, typing: bool = False
) -> tuple[Hint, ...]:
    """Take an annotation apart; ``typing`` as for ``Sources.find``."""
    return tuple(dict.fromkeys(_HintReader(sources, typing=typing).read(annotation, 0)))


def has(found: tuple[Hint, ...], name: str) -> bool:
    """Tell whether a builtin type is among the hints."""
    return any(hint.kind == "builtin" and hint.name == name for hint in found)


class _HintReader:
    def __init__(self, sources: ModuleSources, *, typing: bool) -> None:
        self.sources = sources
        self.typing = typing

    def read(self, at: SourcePlace, depth: int) -> Iterator[Hint]:
        node = at.node
        if depth > _DEPTH:
            yield Hint("other", "too deep")
        elif isinstance(node, ast.Constant) and node.value is None:
            yield Hint("builtin", "None")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                quoted = syntax_tree.parse(node.value, mode="eval").body  # a forward reference
            except (SyntaxError, ValueError):
                yield Hint("other", node.value)
                return
            yield from self.read(SourcePlace(at.path, quoted), depth + 1)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            for side in (node.left, node.right):
                yield from self.read(SourcePlace(at.path, side), depth + 1)
        elif isinstance(node, ast.Subscript):
            yield from self.subscript(at.path, node, depth)
        else:
            yield from self.named(at, dotted(node), depth)

    def subscript(self, path: str, node: ast.Subscript, depth: int) -> Iterator[Hint]:
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        args = tuple(SourcePlace(path, one) for one in inside)
        name = (dotted(node.value) or "").rpartition(".")[2]
        name = _CAPITAL.get(name, name)
        if name == "Literal":
            yield Hint("literal", values=tuple(_values(self.sources, args, depth)))
        elif name in {"Union", "Optional"}:
            for one in args:
                yield from self.read(one, depth + 1)
            if name == "Optional":
                yield Hint("builtin", "None")
        elif name in _WRAPPERS:
            yield from self.read(args[0], depth + 1)
        elif name in _BUILTINS:
            yield Hint("builtin", name, args=args)
        else:
            yield Hint("other", ast.unparse(node))

    def named(self, at: SourcePlace, name: str | None, depth: int) -> Iterator[Hint]:
        place = self.sources.find(at.path, name, typing=self.typing) if name else None
        if name is None:
            yield Hint("other", ast.unparse(at.node))
        elif place is None:
            short = _CAPITAL.get(name, name)
            yield Hint("builtin", short) if short in _BUILTINS else Hint("other", name)
        elif isinstance(place.node, ast.ClassDef):
            yield Hint("class", place.node.name, place=place)
        else:
            value = getattr(place.node, "value", None)  # `X = …`, `X: TypeAlias = …`, `type X = …`
            if value is None:
                yield Hint("other", name)
            else:
                yield from self.read(SourcePlace(place.path, value), depth + 1)


def _values(sources: ModuleSources, args: tuple[SourcePlace, ...], depth: int) -> Iterator[object]:
    """Yield the values of a ``Literal``; another ``Literal`` inside it is opened."""
    for one in args:
        if isinstance(one.node, ast.Constant):
            yield one.node.value
        elif isinstance(one.node, ast.UnaryOp) and isinstance(one.node.operand, ast.Constant):
            yield ast.literal_eval(one.node)
        else:
            for hint in _HintReader(sources, typing=False).read(one, depth + 1):
                yield from hint.values
