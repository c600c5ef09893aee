"""Bases and attributes of classes, as far as the tree knows them."""

import pkgutil
from functools import cache

from vllm_mods.fit.shapes import Class, words
from vllm_mods.fit.symbols import Lineage, Symbol
from vllm_mods.fit.world import World, remembered

# The public and protected names of torch.nn.Module in torch 2.0 to 2.13 (its class
# documentation and __init__). Every other attribute is set by somebody: fit looks for who.
TORCH_MODULE = words(
    "T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda "
    "double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter "
    "get_submodule half ipu load_state_dict modules mtia named_buffers named_children "
    "named_modules named_parameters parameters register_backward_hook register_buffer "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_load_state_dict_post_hook "
    "register_load_state_dict_pre_hook register_module register_parameter "
    "register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state "
    "set_submodule share_memory state_dict to to_empty train training type xpu zero_grad "
    "_parameters _buffers _modules _non_persistent_buffers_set _backward_hooks "
    "_backward_pre_hooks _forward_hooks _forward_pre_hooks _state_dict_hooks "
    "_load_state_dict_pre_hooks _call_impl _wrapped_call_impl _slow_forward _apply _get_name "
    "_register_load_state_dict_pre_hook _maybe_warn_non_full_backward_hook "
    "_named_members _register_state_dict_hook _load_from_state_dict _save_to_state_dict "
    "_compiled_call_impl _is_full_backward_hook _version _get_backward_hooks"
)
_TORCH_MODULES = words("torch.nn.Module torch.nn.modules.Module torch.nn.modules.module.Module")
# Standard classes whose instances have the attributes of the class and no others.
_PLAIN = words(
    "abc.ABC typing.Protocol typing.Generic typing.NamedTuple typing_extensions.Protocol "
    "typing_extensions.NamedTuple enum.Enum enum.IntEnum enum.StrEnum enum.Flag enum.IntFlag "
    "collections.OrderedDict collections.defaultdict collections.deque "
    "collections.abc.Mapping collections.abc.MutableMapping collections.abc.Sequence "
    "collections.abc.Iterator collections.abc.Iterable collections.abc.Callable "
    "contextlib.ContextDecorator contextlib.AbstractContextManager "
    "typing.Sequence typing.Mapping typing.Iterable"
)
_BUILTINS = words(
    "object dict list tuple set frozenset str int float bytes Exception ValueError RuntimeError "
    "TypeError KeyError AttributeError NotImplementedError BaseException OSError"
)
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
            outside[base] = None
    return torch


def _external(symbols: tuple[Symbol, ...], text: str) -> str:
    return next((one.external for one in symbols if one.external), text)


@cache
def _standard_names(dotted: str) -> frozenset[str] | None:
    """Return the attributes of a class of the standard library, if these are all there are."""
    if dotted in _PLAIN and dotted.endswith(".NamedTuple"):
        return frozenset(dir(tuple)) | words("_asdict _replace _fields _make _field_defaults")
    if dotted in _BUILTINS:
        dotted = f"builtins.{dotted}"
    elif dotted not in _PLAIN:
        return None
    place = dotted.replace("typing_extensions.", "typing.")
    names = frozenset(dir(pkgutil.resolve_name(place)))
    return names | _ENUM if dotted.startswith("enum.") else names


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
