"""What a class takes when it is called."""

from __future__ import annotations

import re
from typing import NamedTuple

from vllm_mods.fit.hierarchy import external_name, lineage
from vllm_mods.fit.shapes import Class, Function, Kind, Parameter, words
from vllm_mods.fit.signatures import implementations, opaque_decorator, unbound
from vllm_mods.fit.symbols import Lineage, Symbol
from vllm_mods.fit.world import World

# Decorators of classes that leave what they take as it is; so do those whose names start with "register".
_TRANSPARENT = words(
    "dataclass config final runtime_checkable support_torch_compile dataclass_transform deprecated "
    "total_ordering attn_type default_pooling_type ignore_torch_compile unique"
)
_ANYTHING = (
    Parameter(name="args", kind=Kind.STAR, required=False),
    Parameter(name="kwargs", kind=Kind.DOUBLE_STAR, required=False),
)
# What gives a field that is left out a value, or another name: a validator before the fields.
_FILLS = re.compile(
    rb"\b(?:validation_)?alias(?:_generator)?\s*=|root_validator|model_validator\((?:[^)]|\n)*?mode\s*=\s*[\"']before"
    rb"|[\"']wrap[\"'](?:.|\n)*?(?:setdefault\(|\bdata\[[^\]]+\]\s*=[^=]|\{\s*\*\*)"
)
_TUPLES = words("typing.NamedTuple typing_extensions.NamedTuple")


class Constructor(NamedTuple):
    """The parameters of a class call, and the function or class they come from.

    With a ``why`` there may be more to it than these parameters, which a call has to fit anyway
    where they are known.
    """

    parameters: tuple[Parameter, ...] | None = None
    path: str = ""
    line: int = 0
    text: str = ""
    why: str = ""


def constructor(world: World, symbol: Symbol) -> Constructor:
    """Find what calling a class takes."""
    line = lineage(world, symbol)
    new = line.owner("__new__")
    if new is not None and not all(_forwards(function) for function in new[1]):
        # Whatever __init__ takes, a call has to pass __new__ first.
        first = _signature(new[0], implementations(new[1]))
        return first._replace(why=first.why or "it defines __new__")
    model = _model(world, symbol, line)
    if model is not None:
        return model
    for owner in line.classes:
        own = _own(world, owner, line)
        if own is None:
            continue
        if owner != symbol and line.outside and not own.why:
            # The base outside may come first, with an __init__ of its own.
            break
        return own
    return _without_own(world, symbol, line)


def _model(world: World, symbol: Symbol, line: Lineage) -> Constructor | None:
    """Return what a pydantic model needs; what else it takes is its configuration's business."""
    roots = {
        external_name(world, one.path, base)
        for one in line.classes
        for base in one.cls.bases
        if base in line.outside
    }
    if roots != {"pydantic.BaseModel"} or line.owner("__init__") or line.owner("__new__"):
        return None
    # A validator may fill in what is left out, an alias rename it.
    fills = any(_FILLS.search(_text(world, one)) for one in line.classes)
    fields = {item.name: item for one in reversed(line.classes) for item in one.cls.fields}
    parameters = tuple(
        Parameter(name=name, kind=Kind.KEYWORD_ONLY, required=item.required and not fills)
        for name, item in fields.items()
        if not name.startswith("_")
    )
    return Constructor(
        parameters=(*parameters, _ANYTHING[1]),
        path=symbol.path,
        line=symbol.cls.line,
        text=f", a pydantic model with {len(parameters)} fields",
    )


def _text(world: World, symbol: Symbol) -> bytes:
    rows = (world.read(symbol.path) or b"").splitlines(keepends=True)
    return b"".join(rows[symbol.cls.line - 1 : symbol.cls.end])


def _own(  # noqa: PLR0911 - an answer per way to be made
    world: World, symbol: Symbol, line: Lineage
) -> Constructor | None:
    """Return what one class of a line says of calling it, ``None`` if nothing."""
    binding = symbol.cls
    for name, value in binding.keywords:
        if name == "metaclass" and value.rpartition(".")[2] != "ABCMeta":
            return Constructor(why=f"{binding.name} has a metaclass")
    for name, _ in binding.decorators:
        last = name.rpartition(".")[2]
        if last not in _TRANSPARENT and not last.startswith("register"):
            return Constructor(why=f"it is decorated with {name}")
    if "__init__" in binding.methods:
        return _signature(symbol, implementations(binding.methods["__init__"]))
    kind = _data_kind(world, symbol)
    if kind == "can't tell":
        return Constructor(why=f"{binding.name} is a pydantic dataclass")
    if kind:
        return _from_fields(world, symbol, line, kind)
    if "__init__" in binding.attributes:
        return Constructor(why="its __init__ is not a plain function")
    return None


def _without_own(world: World, symbol: Symbol, line: Lineage) -> Constructor:
    """Describe calling a class whose ``__init__`` is not in the tree."""
    if line.outside:
        return Constructor(why=f"its base {line.outside[0]} is outside the tree")
    if line.torch:
        return Constructor(why="its __init__ is torch.nn.Module's")
    if any(_standard_base(world, one) for one in line.classes):
        # An exception, mostly: its arguments are the standard library's business.
        return Constructor(parameters=_ANYTHING)
    binding = symbol.cls
    return Constructor(parameters=(), path=symbol.path, line=binding.line, text="()")


def _standard_base(world: World, symbol: Symbol) -> bool:
    harmless = {"ABC", "Protocol", "Generic", "object"}
    return any(
        external_name(world, symbol.path, base).rpartition(".")[2] not in harmless
        for base in symbol.cls.bases
        if not any(isinstance(f.binding, Class) for f in world.resolve(symbol.path, base).symbols)
    )


def _forwards(function: Function) -> bool:
    return {Kind.STAR, Kind.DOUBLE_STAR} <= {parameter.kind for parameter in function.parameters}


def _signature(symbol: Symbol, functions: tuple[Function, ...]) -> Constructor:
    name = functions[0].name
    if len(functions) != 1:
        return Constructor(parameters=_ANYTHING, why=f"it has several {name}")
    opaque = opaque_decorator(functions[0])
    if opaque is not None:
        return Constructor(parameters=_ANYTHING, why=f"its {name} is decorated with {opaque}")
    return Constructor(
        # also where __new__ says what it is anyway, a static method: the class is passed by itself
        parameters=unbound(functions[0]._replace(decorators=())),
        path=symbol.path,
        line=functions[0].line,
        text=f".{name}{functions[0].text()}",
    )


def _data_kind(world: World, symbol: Symbol) -> str:
    """Tell what makes an ``__init__`` from the fields, ``""`` if nothing does."""
    for name, keywords in symbol.cls.decorators:
        last = name.rpartition(".")[2]
        if last == "dataclass":
            resolved = external_name(world, symbol.path, name)
            if resolved.startswith("pydantic"):
                return "can't tell"
            if resolved in {"dataclasses.dataclass", "dataclass", name}:
                return "plain" if "init=False" not in keywords else "can't tell"
        if last == "config":
            return _config_kind(world, symbol, name)
    for base in symbol.cls.bases:
        resolved = external_name(world, symbol.path, base)
        if resolved in _TUPLES:
            return "plain"
        if resolved == "msgspec.Struct":
            return "struct"
    return ""


def _config_kind(world: World, symbol: Symbol, name: str) -> str:
    """Judge vLLM's own ``@config`` by whether it forbids extra keywords."""
    for decorator in world.resolve(symbol.path, name).symbols:
        if isinstance(decorator.binding, Function):
            data = world.read(decorator.path) or b""
            return "plain" if b'extra="forbid"' in data else "can't tell"
    return "can't tell"


def _from_fields(world: World, symbol: Symbol, line: Lineage, kind: str) -> Constructor:
    if line.outside and not (kind == "struct" and set(line.outside) == {"msgspec.Struct"}):
        return Constructor(why=f"its base {line.outside[0]} is outside the tree")
    parameters: dict[str, Parameter] = {}
    for owner in reversed(line.classes):
        own = owner.cls
        if not _data_kind(world, owner) and not (kind == "struct" and own.bases):
            continue
        kw_only = ("kw_only", "True") in own.keywords or any(
            "kw_only=True" in keywords for _, keywords in own.decorators
        )
        for item in own.fields:
            named = Kind.KEYWORD_ONLY if kw_only or item.kw_only else Kind.STANDARD
            if item.init:
                parameters[item.name] = Parameter(item.name, named, item.required, item.type)
            else:
                parameters.pop(item.name, None)
    ordered = sorted(parameters.values(), key=lambda parameter: parameter.kind)
    whole = Function(symbol.cls.name, symbol.cls.line, tuple(ordered))
    return Constructor(whole.parameters, symbol.path, whole.line, whole.text())
