"""Values as far as they are known: what an expression of the tree comes to without running vLLM."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from vllm_mods.serving import configs
from vllm_mods.serving.configs import Member
from vllm_mods.serving.source import ClassPlace, ModuleSources, SourcePlace, last_name


class _UnknownValue:
    def __repr__(self) -> str:
        return "…"


UNKNOWN: Final = _UnknownValue()
ABSENT: Final = object()
Trail = list[tuple[dict[str, Any], str, Any]]
"""What was written into which names, and what stood there before, or ``ABSENT``."""
_LONGEST = 200

OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


class RefusedError(Exception):
    """The tree raises here, whatever is not known. ``names`` are those that it looked at."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class Frame(NamedTuple):
    """One call: its names, and the file that it is in."""

    path: str
    names: dict[str, Any]


@dataclass(eq=False, slots=True)
class KnownObject:
    """An object of a class of the tree, with the attributes that are known so far.

    The others have their default, or are not known where only a part is (``partly``).
    """

    cls: ClassPlace
    attrs: dict[str, Any] = field(default_factory=dict)
    partly: bool = False

    def __repr__(self) -> str:
        return self.cls.node.name


@dataclass(frozen=True, slots=True)
class CodeReference:
    """A function or class of the tree; ``owner`` is what it is called on."""

    place: SourcePlace[ast.ClassDef | ast.FunctionDef]
    owner: Any = None


OF_TREE = (KnownObject, Member, CodeReference)
"""What only code of the tree can compute with."""


def is_plain_enum(sources: ModuleSources, cls: ClassPlace) -> bool:
    """Tell whether a class is an enumeration whose look-up is Python's own."""
    return configs.is_enum(sources, cls) and sources.method(cls, "_missing_") is None


def known(value: object) -> bool:
    """Tell whether a value and all that it holds is known."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(known(one) for one in value)
    return value is not UNKNOWN


def truth(value: object) -> bool | None:
    """Return whether a value counts as true, ``None`` if that is not known."""
    if value is UNKNOWN:
        return None
    if isinstance(value, Member):
        return bool(value.value) if value.plain and _counts(value) else True
    return True if isinstance(value, (KnownObject, CodeReference)) else bool(value)


def same(one: object, other: object) -> bool | None:  # noqa: PLR0911 - an answer per pair of kinds
    """Return whether two values are equal, ``None`` if that is not known."""
    if isinstance(other, Member) and not isinstance(one, Member):
        one, other = other, one
    if isinstance(one, Member) and isinstance(other, Member):
        if one.cls != other.cls:
            return None if _counts(one) or _counts(other) else False
        return one.name == other.name or (one.plain == other.plain and one.value == other.value)
    if isinstance(one, Member):
        if other is UNKNOWN:
            return None
        return one.plain and one.value == other if _counts(one) else False
    if isinstance(one, OF_TREE) or isinstance(other, OF_TREE):
        if one is None or other is None:
            return False
        return True if one is other else None
    return bool(one == other) if known(one) and known(other) else None


def inside(item: object, container: object) -> bool | None:
    """Return whether ``item in container``, ``None`` if that is not known."""
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    if isinstance(container, (list, tuple, set, frozenset, dict)):
        answers = [same(item, one) for one in container]
        return True if True in answers else None if None in answers else False
    return None


def items_of(value: Any) -> list[Any] | None:
    """Return what a loop goes over, ``None`` if that is not known."""
    if isinstance(value, (list, tuple, set, frozenset, dict, range)) and len(value) <= _LONGEST:
        return list(value)
    return None


def undo(trail: Trail) -> None:
    """Take back what was written."""
    for into, key, before in reversed(trail):
        if before is ABSENT:
            into.pop(key, None)
        else:
            into[key] = before


def _counts(member: Member) -> bool:
    """Tell whether a member is a number or a text itself, and equal to a plain one."""
    bases = {last_name(base) for base in member.cls.node.bases}
    return bool(bases & {"IntEnum", "StrEnum", "IntFlag", "int", "str"})
