"""Bases and attributes of classes, as far as the tree knows them."""

import re
from functools import cache
from importlib import import_module

from vllm_mods.fit import checker
from vllm_mods.fit.shapes import Class, Lineage, Symbol, words
from vllm_mods.fit.world import World, remembered

_TORCH_STUB = checker.stub("outside/torch/nn/modules/module.pyi").decode()
TORCH_MODULE = frozenset(re.findall(r"^    (?:def )?(\w+)", _TORCH_STUB, re.MULTILINE))
"""The names of ``torch.nn.Module``. Every other attribute is set by somebody: fit looks for who."""
_TORCH_MODULES = words("torch.nn.Module torch.nn.modules.Module torch.nn.modules.module.Module")
# Standard modules whose classes have instances with the attributes of the class and no others that count.
_STANDARD = words("abc builtins collections collections.abc contextlib enum typing")
_ENUM = words("name value _value_ _name_")


@remembered
def lineage(world: World, symbol: Symbol) -> Lineage:
    """Follow the bases of a class through the tree."""
    order: dict[Symbol, None] = {}
    outside: dict[str, None] = {}
    torch = _visit(world, symbol, order, outside, 0)
    return Lineage(tuple(order), tuple(outside), torch)


def _visit(
    world: World, symbol: Symbol, order: dict[Symbol, None], outside: dict[str, None], depth: int
) -> bool:
    # A class met again goes behind what was seen in between, as Python's order has it.
    order.pop(symbol, None)
    order[symbol] = None
    torch = False
    if depth > 20:
        outside["the bases form a cycle"] = None
        return torch
    for base in symbol.cls.bases:
        answer = world.resolve(symbol.path, base)
        classes = tuple(f for f in answer.symbols if isinstance(f.binding, Class) and f != symbol)
        for above in classes:
            torch = _visit(world, above, order, outside, depth + 1) or torch
        name = _external(answer.symbols, base)
        if name in _TORCH_MODULES:
            torch = True
        elif (len(classes), len(answer.symbols)) != (1, 1) and _standard_names(name) is None:
            outside[name if len(answer.symbols) == 1 else base] = None
    return torch


def _external(symbols: tuple[Symbol, ...], text: str) -> str:
    return next((one.external for one in symbols if one.external), text)


@cache
def _standard_names(dotted: str) -> frozenset[str] | None:
    """Return the attributes of a class of the standard library, if these are all there are."""
    place = dotted if "." in dotted else f"builtins.{dotted}"
    module, _, name = place.replace("typing_extensions.", "typing.").rpartition(".")
    if name == "NamedTuple":
        return frozenset(dir(tuple)) | words("_asdict _replace _fields _make _field_defaults")
    if module not in _STANDARD or name in {"Any", "type"}:
        return None
    found = getattr(import_module(module), name, None)
    return None if found is None else frozenset(dir(found)) | (_ENUM if module == "enum" else set())


def attributes(world: World, line: Lineage) -> frozenset[str]:
    """Return every attribute that an instance is known to have."""
    names = {*dir(object), "__dict__", "__annotations__", "__name__", "__qualname__"}
    if line.torch:
        names |= TORCH_MODULE
    for symbol in line.classes:
        names |= symbol.cls.attributes
        for base in symbol.cls.bases:
            resolved = world.resolve(symbol.path, base).symbols
            names |= _standard_names(_external(resolved, base)) or set()
        decorators = {name.rpartition(".")[2] for name in symbol.cls.decorators}
        if not decorators.isdisjoint(("dataclass", "config")):
            names |= {"__dataclass_fields__", "__post_init__", "__pydantic_fields__"}
    return frozenset(names)
