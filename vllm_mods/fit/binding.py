"""Whether a call binds to a signature, and whether one signature can stand in for another."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.fit.shapes import Function, Kind, Parameter, words

# Decorators that leave the parameters as they are.
_TRANSPARENT = words(
    "staticmethod classmethod abstractmethod overload override final no_type_check inference_mode "
    "no_grad enable_grad lru_cache cache contextmanager asynccontextmanager deprecated "
    "torch_compile_guard assume_constant_result disable typing_extensions.override "
    "model_validator eager_break_during_capture maybe_transfer_kv_layer"
)
_PROPERTIES = words(
    "property cached_property abstractproperty setter getter deleter computed_field "
    "classproperty field_validator validator"
)


class CallShape(NamedTuple):
    """The arguments of a call. ``star`` and ``double_star`` hide how many there are more."""

    positional: int
    keywords: tuple[str, ...] = ()
    star: bool = False
    double_star: bool = False

    def text(self) -> str:
        """Describe the arguments for a message."""
        parts = []
        if self.positional:
            noun = "argument" if self.positional == 1 else "arguments"
            parts.append(f"{self.positional} positional {noun}")
        if self.keywords:
            parts.append(", ".join(f"{name}=" for name in self.keywords))
        return " and ".join(parts) or "no arguments"


def shape_of(node: ast.Call) -> CallShape:
    """Describe the arguments of a call."""
    plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
    return CallShape(
        positional=len(plain),
        keywords=tuple(keyword.arg for keyword in node.keywords if keyword.arg is not None),
        star=len(plain) != len(node.args),
        double_star=any(keyword.arg is None for keyword in node.keywords),
    )


def passed(parameters: Sequence[Parameter], node: ast.Call) -> Iterator[tuple[Parameter, ast.expr]]:
    """Pair the arguments of a call with the parameters that they are for, as far as it is plain."""
    positional = [p for p in parameters if p.kind in {Kind.POSITIONAL_ONLY, Kind.STANDARD}]
    for parameter, value in zip(positional, node.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        yield parameter, value
    named = {p.name: p for p in parameters if p.kind in {Kind.STANDARD, Kind.KEYWORD_ONLY}}
    for keyword in node.keywords:
        if keyword.arg in named:
            yield named[keyword.arg], keyword.value


def refusal(parameters: Sequence[Parameter], shape: CallShape) -> str | None:
    """Say why a call does not bind, ``None`` if it does or if it can't be told."""
    positional = [p for p in parameters if p.kind in {Kind.POSITIONAL_ONLY, Kind.STANDARD}]
    kinds = {p.kind for p in parameters}
    if shape.positional > len(positional) and Kind.STAR not in kinds:
        return (
            f"passes {shape.positional} positional argument{'s' * (shape.positional != 1)} "
            f"where {len(positional)} fit{'s' * (len(positional) == 1)}"
        )
    by_name = {p.name for p in parameters if p.kind in {Kind.STANDARD, Kind.KEYWORD_ONLY}}
    filled = {p.name for p in positional[: shape.positional]}
    for keyword in shape.keywords:
        if keyword in filled and keyword in by_name and not shape.star:
            return f"passes {keyword}= twice, by position and by name"
        if keyword not in by_name and Kind.DOUBLE_STAR not in kinds:
            return f"passes {keyword}=, which it does not take"
    if shape.double_star:
        return None
    given = filled | set(shape.keywords)
    for parameter in parameters:
        hidden = shape.star and parameter.kind is not Kind.KEYWORD_ONLY
        if parameter.required and parameter.name not in given and not hidden:
            return f"does not pass {parameter.name}, which it needs"
    return None


def stands_in(  # noqa: C901, PLR0911 - one rule of Python per branch
    old: Sequence[Parameter], new: Sequence[Parameter]
) -> bool:
    """Tell whether ``new`` accepts every call that ``old`` accepts. The receiver is left out."""
    star = any(p.kind is Kind.STAR for p in new)
    double_star = any(p.kind is Kind.DOUBLE_STAR for p in new)
    if any(p.kind is Kind.STAR for p in old) and not star:
        return False
    if any(p.kind is Kind.DOUBLE_STAR for p in old) and not double_star:
        return False
    places = [p for p in new if p.kind in {Kind.POSITIONAL_ONLY, Kind.STANDARD}]
    names = {p.name for p in new if p.kind in {Kind.STANDARD, Kind.KEYWORD_ONLY}}
    filled: set[str] = set()
    position = 0
    for parameter in old:
        if parameter.kind in {Kind.STAR, Kind.DOUBLE_STAR}:
            continue
        if parameter.kind is not Kind.KEYWORD_ONLY:
            if position < len(places):
                place = places[position]
                if parameter.kind is Kind.STANDARD and place.name != parameter.name:
                    return False
                if place.required and not parameter.required:
                    return False
                filled.add(place.name)
            elif not star:
                return False
            position += 1
        if parameter.kind is not Kind.POSITIONAL_ONLY:
            if parameter.name not in names and not double_star:
                return False
            mine = next((p for p in new if p.name == parameter.name), None)
            if mine is not None and mine.required and not parameter.required:
                return False
            filled.add(parameter.name)
    return all(not p.required or p.name in filled for p in new)


def has_kind(function: Function, name: str) -> bool:
    """Tell whether one of the decorators ends in ``name``."""
    return any(decorator.rpartition(".")[2] == name for decorator in function.decorators)


def is_property(function: Function) -> bool:
    """Tell whether the function is read, not called."""
    return any(d.rpartition(".")[2] in _PROPERTIES for d in function.decorators)


def opaque_decorator(function: Function) -> str | None:
    """Return the first decorator that may change the signature, ``None`` if none may."""
    for decorator in function.decorators:
        if decorator.rpartition(".")[2] not in _TRANSPARENT:
            return decorator
    return None


def implementations(functions: Sequence[Function]) -> tuple[Function, ...]:
    """Leave out ``@overload`` declarations where the implementation is there too."""
    real = tuple(function for function in functions if not has_kind(function, "overload"))
    return real or tuple(functions)


def unbound(function: Function) -> tuple[Parameter, ...]:
    """Return a method's parameters without the receiver."""
    first = function.parameters[:1]
    if has_kind(function, "staticmethod") or not first or first[0].kind >= Kind.STAR:
        return function.parameters
    return function.parameters[1:]
