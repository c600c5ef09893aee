"""What an annotation allows: ``str | Literal["a", "b"] | None`` taken apart, through aliases."""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.formats import syntax_tree
from vllm_mods.serving import configs, source

_BUILTINS = frozenset({"bool", "int", "float", "str", "dict", "list", "tuple", "set", "None"})
_CAPITAL = {"Dict": "dict", "List": "list", "Tuple": "tuple", "Set": "set"}
# What only wraps the type that it says something about.
_WRAPPERS = {"Annotated", "SkipValidation", "Final", "InitVar", "Required", "NotRequired"}
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
    args: tuple[source.AnyPlace, ...] = ()
    place: source.ClassPlace | None = None


def hints(
    sources: source.ModuleSources, annotation: source.AnyPlace, *, typing: bool = False
) -> tuple[Hint, ...]:
    """Take an annotation apart; ``typing`` as for ``ModuleSources.find``."""
    return tuple(dict.fromkeys(_HintReader(sources, typing=typing).read(annotation, 0)))


def literals(hints: Iterable[Hint]) -> tuple[object, ...]:
    """Return the values of all ``Literal`` among hints."""
    return tuple(value for hint in hints for value in hint.values)


def config_class(sources: source.ModuleSources, hints: Iterable[Hint]) -> source.ClassPlace | None:
    """Return the first config class among hints."""
    places = (hint.place for hint in hints)
    return next((one for one in places if one and configs.is_dataclass(sources, one)), None)


class _HintReader:
    def __init__(self, sources: source.ModuleSources, *, typing: bool) -> None:
        self.sources = sources
        self.typing = typing

    def read(self, at: source.AnyPlace, depth: int) -> Iterator[Hint]:
        match at.node:
            case _ if depth > _DEPTH:
                yield Hint("other", "too deep")
            case ast.Constant(value=None):
                yield Hint("builtin", "None")
            case ast.Constant(value=str(text)):
                try:
                    quoted = syntax_tree.parse(text, mode="eval").body  # a forward reference
                except (SyntaxError, ValueError):
                    yield Hint("other", text)
                    return
                yield from self.read(source.SourcePlace(at.path, quoted), depth + 1)
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                for side in (left, right):
                    yield from self.read(source.SourcePlace(at.path, side), depth + 1)
            case ast.Subscript() as node:
                yield from self.subscript(at.path, node, depth)
            case node:
                yield from self.named(at, dotted(node), depth)

    def subscript(self, path: str, node: ast.Subscript, depth: int) -> Iterator[Hint]:
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        args = tuple(source.SourcePlace(path, one) for one in inside)
        name = source.last_name(node.value)
        name = _CAPITAL.get(name, name)
        if name == "Literal":
            yield Hint("literal", values=tuple(self.values(args, depth)))
        elif name in {"Union", "Optional"}:
            for arg in args:
                yield from self.read(arg, depth + 1)
            if name == "Optional":
                yield Hint("builtin", "None")
        elif name in _WRAPPERS:
            yield from self.read(args[0], depth + 1)
        elif name in _BUILTINS:
            yield Hint("builtin", name, args=args)
        else:
            yield Hint("other", ast.unparse(node))

    def named(self, at: source.AnyPlace, name: str | None, depth: int) -> Iterator[Hint]:
        place = self.sources.find(at.path, name, typing=self.typing)
        if name is None:
            yield Hint("other", ast.unparse(at.node))
        elif place is None:
            short = _CAPITAL.get(name, name)
            yield Hint("builtin", short) if short in _BUILTINS else Hint("other", name)
        elif cls := source.as_class(place):
            yield Hint("class", cls.node.name, place=cls)
        else:
            value = getattr(place.node, "value", None)  # `X = …`, `X: TypeAlias = …`, `type X = …`
            if value is None:
                yield Hint("other", name)
            else:
                yield from self.read(source.SourcePlace(place.path, value), depth + 1)

    def values(self, args: tuple[source.AnyPlace, ...], depth: int) -> Iterator[object]:
        """Yield the values of a ``Literal``; another ``Literal`` inside it is opened."""
        for arg in args:
            try:
                yield ast.literal_eval(arg.node)
            except ValueError:
                yield from literals(_HintReader(self.sources, typing=False).read(arg, depth + 1))
