"""JSON as the type that says what it should be; every problem with its key path. Pure.

One decoder for all that was written as JSON and comes back: a ``NamedTuple`` says which keys an object has,
its hints what they hold.
"""

from __future__ import annotations

import re
import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")
_NAMES = {str: "text", int: "a whole number", bool: "true or false", float: "a number"}


class DecodeError(ValueError):
    """What does not fit its type: ``problems``, each as ``mods[0].files: must be a list``."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class Spelled(NamedTuple):
    """What JSON has for a value: ``Annotated[X, Spelled(Y, make)]`` is read as a Y, of which ``make`` makes the X."""

    kind: Any
    make: Callable[[Any], Any]


def matching(pattern: str, why: str) -> Callable[[str], str | None]:
    """Return the check of a text that begins as a pattern says; ``why`` is what is wrong with any other."""
    return lambda text: None if re.match(pattern, text) else why


def decode(kind: type[T], raw: object, *, more: bool = False, whole: bool = False) -> T:
    """Return ``raw``, as ``json.loads`` has it, as a ``kind``. Raises ``DecodeError`` with every problem.

    A kind is text, a number, an enumeration, ``X | None``, ``tuple[X, ...]``, ``Mapping[str, X]``, a
    ``NamedTuple`` of such, or ``Annotated[X, check]``, where ``check(value)`` returns what is wrong, else None;
    or what is ``Spelled`` otherwise.
    What may be None or has a default may be left out, unless ``whole``. Keys that are not known are a problem,
    unless ``more``.
    """
    reading = _Reading(more=more, whole=whole)
    found = reading.value(kind, raw, "")
    if reading.problems:
        raise DecodeError(reading.problems)
    return cast("T", found)


def repeated(values: Iterable[T]) -> list[T]:
    """Return what is there more than once, sorted."""
    return sorted(value for value, times in Counter(values).items() if times > 1)  # type: ignore[type-var]


def encode(value: Any) -> Any:  # noqa: ANN401  (any of these)
    """Return a ``NamedTuple``, and all that is in it, as what JSON can hold; also within a dict or a list."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: encode(one) for key, one in value.items()}
    return [encode(one) for one in value] if isinstance(value, tuple | list) else value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401
    return get_origin(kind), get_args(kind)


class _Reading:
    def __init__(self, *, more: bool, whole: bool) -> None:
        self.more = more
        self.whole = whole
        self.problems: list[str] = []

    def value(self, kind: Any, raw: object, at: str) -> Any:  # noqa: ANN401  (what ``kind`` says)
        if type(raw) is kind:
            return raw
        origin, inner = _parts(kind)
        if origin is Annotated:
            return self.checked(inner, raw, at)
        if origin in {Union, types.UnionType}:
            rest = [one for one in inner if one is not types.NoneType]
            return None if raw is None and len(rest) < len(inner) else self.value(rest[0], raw, at)
        if origin is tuple:
            return self.row(inner, raw, at)
        if origin in {dict, Mapping}:
            items = raw.items() if isinstance(raw, dict) else self.wrong(at, "an object", ())
            return {key: self.value(inner[1], one, f"{at}.{key}") for key, one in items}
        return self.plain(kind, raw, at)

    def plain(self, kind: Any, raw: object, at: str) -> Any:  # noqa: ANN401
        if hasattr(kind, "_fields"):
            return self.record(kind, raw, at)
        if isinstance(kind, type) and issubclass(kind, Enum):
            known = {one.value: one for one in kind}
            # Nothing of another type is equal to one, and not everything can be looked up.
            there = type(raw) is str and raw in known
            return known[raw] if there else self.wrong(at, f"one of {', '.join(known)}")
        return raw if kind is Any or type(raw) is kind else self.wrong(at, _NAMES[kind])

    def checked(self, inner: tuple[Any, ...], raw: object, at: str) -> Any:  # noqa: ANN401
        kind, *checks = inner
        before = len(self.problems)
        spelled = checks[0] if isinstance(checks[0], Spelled) else None
        found = self.value(spelled.kind if spelled else kind, raw, at)
        if len(self.problems) > before or found is None:
            return found
        if spelled:
            return spelled.make(found)
        self.problems += [f"{at}: {why}" for check in checks if (why := check(found))]
        return found

    def row(self, inner: tuple[Any, ...], raw: object, at: str) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            return cast("tuple[Any, ...]", self.wrong(at, "a list", ()))
        kinds = inner[:1] * len(raw) if inner[1:] == (...,) else inner
        if len(kinds) != len(raw):
            return cast("tuple[Any, ...]", self.wrong(at, f"a list of {len(kinds)}", ()))
        return tuple(
            self.value(kind, one, f"{at}[{n}]")
            for n, (kind, one) in enumerate(zip(kinds, raw, strict=True))
        )

    def record(self, kind: Any, raw: object, at: str) -> Any:  # noqa: ANN401
        if not isinstance(raw, dict):
            return self.wrong(at or "the file", "an object")
        hints, path = _hints(kind), f"{at}." if at else ""
        if not self.more:
            self.problems += [f"{path}{key}: is not known" for key in raw if key not in hints]
        found = {}
        for key, hint in hints.items():
            if key in raw:
                found[key] = self.value(hint, raw[key], path + key)
            elif self.whole or key not in kind._field_defaults:
                found[key] = None
                if self.whole or types.NoneType not in get_args(hint):
                    self.problems.append(f"{path}{key}: is missing")
        return kind(**found)

    def wrong(self, at: str, what: str, found: object = None) -> Any:  # noqa: ANN401
        self.problems.append(f"{at}: must be {what}")
        return found
