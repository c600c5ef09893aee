"""The reader of schemas: TOML and JSON as the type that says what they should be. Pure.

Every problem is collected with its key path, and all are raised at once. What people write (manifests, pairings,
projects) is read key by key from a ``Table``; what this tool writes as JSON, and takes back, is read by the hints
of a ``NamedTuple`` (``decode``).
"""

from __future__ import annotations

import re
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar, Union, cast

from vllm_mods.base import secrets
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import json_in
from vllm_mods.base.versions import in_range

T = TypeVar("T")
Scalar = str | int | float | bool
NAME = r"[a-z0-9][a-z0-9._-]*\Z"
NAME_IN_WORDS = "lower case letters, digits, '.', '_' and '-'"
BUNDLED = "vllm-mods"
"""The owner of what comes with the tool: no library of others has that name."""
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*\Z"


@contextmanager
def reading(
    raw: Mapping[str, Any], where: str, schema: int, *, at: str = "", hint: str | None = None
) -> Iterator[Table]:
    """Give the table of a whole file, and raise ``ManifestError`` in the end with every problem found in it.

    Another ``schema`` is one, and so is each key that nobody asked for, and each secret.
    """
    top = Table(raw, at, [])
    stated = top.get("schema", int, required=True)
    if stated is not None and stated != schema:
        top.problem("schema", f"this version of vllm-mods reads schema {schema}, not {stated}")
    yield top
    top.refuse_unknown()
    top.problems += secrets.problems(raw, at)
    if top.problems:
        raise ManifestError(where, tuple(top.problems), hint=hint)


class Table:
    """A TOML table with its key path; problems go to one list for the whole manifest."""

    def __init__(
        self, table: Mapping[str, Any], at: str, problems: list[str], *, name: str = ""
    ) -> None:
        """Take a parsed table."""
        self.raw = table
        self.at = at
        self.name = name
        self.problems = problems
        self.known: set[str] = set()
        self.bad: set[str] = set()

    def problem(self, key: str, why: str) -> None:
        """Note what is wrong with a key, or with the table itself."""
        self.bad.add(key)
        self.problems.append(f"{self._path(key)}: {why}")

    def expected(self, key: str, words: str, value: object) -> None:
        """Note what should stand at a key, or be the table itself, and what is there."""
        self.problem(key, f"expected {words}, found {in_words(value)}")

    def get(self, key: str, kind: type[T], *, required: bool = False) -> T | None:
        """Return a value of this type, ``None`` if it is not there or another."""
        self.known.add(key)
        value = self.raw.get(key)
        if value is None:
            if required:
                self.problem(key, "is required")
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.expected(key, _WORDS[kind], value)
            return None
        if required and value == "":
            self.problem(key, "is empty")
        return cast("T", value)

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text, an empty one if there is none."""
        return self.get(key, str, required=required) or ""

    def match(self, key: str, pattern: str, words: str, *, required: bool = False) -> str:
        """Return text that matches; ``words`` say what was expected."""
        text = self.text(key, required=required)
        if text and not re.match(pattern, text):
            self.problem(key, f"expected {words}, found {text!r}")
        return text

    def choice(
        self, key: str, allowed: tuple[str, ...], default: str, *, required: bool = False
    ) -> str:
        """Return one of a few words."""
        text = self.get(key, str, required=required)
        if text is not None and text not in allowed:
            self.problem(key, f"expected one of {', '.join(allowed)}, found {text!r}")
        return text or default

    def strings(self, key: str, pattern: str | None = None, words: str = "") -> tuple[str, ...]:
        """Return an array of texts that match."""
        texts = []
        for at, value in self._each(key, str):
            if pattern is not None and not re.match(pattern, value):
                self.problem(at, f"expected {words}, found {value!r}")
            else:
                texts.append(value)
        return tuple(texts)

    def path(self, key: str, *, required: bool = False) -> str:
        """Return a relative path that stays in its folder."""
        return self._safe_path(key, self.text(key, required=required))

    def paths(self, key: str) -> tuple[str, ...]:
        """Return an array of such paths."""
        return tuple(self._safe_path(f"{key}[{i}]", one) for i, one in enumerate(self.strings(key)))

    def _safe_path(self, key: str, text: str) -> str:
        if text.startswith("/") or "\\" in text:
            self.problem(key, f"expected a relative path with '/', found {text!r}")
        elif ".." in text.split("/"):
            self.problem(key, f"{text!r} points outside its folder")
        elif "\0" in text:
            self.problem(key, f"{text!r} is not a path")
        return text

    def specifier(self, key: str) -> str:
        """Return a PEP 440 specifier, which has to be there."""
        text = self.text(key, required=True)
        self.check_range(key, text)
        return text

    def check_range(self, key: str, specifier: str) -> None:
        """Note a text that is no specifier of PEP 440."""
        try:
            in_range("0", specifier)
        except ValueError as error:
            self.problem(key, str(error))

    def scalar(self, key: str, value: object) -> Scalar:
        """Return a single value."""
        if not isinstance(value, Scalar):
            self.expected(key, "text, a number, true or false", value)
            return ""
        return value

    def variables(self) -> dict[str, str]:
        """Return the table itself as environment variables."""
        for key, value in self.raw.items():
            if not re.match(_VARIABLE, key):
                self.problem(key, "is not the name of an environment variable")
            elif isinstance(value, str) and "\0" in value:
                self.problem(key, "contains a NUL, which no variable can have")
        return {key: value for key in self.raw if (value := self.get(key, str)) is not None}

    def table(self, key: str) -> Table:
        """Return the table below a key, an empty one if it is not there."""
        return self._below(self.get(key, dict) or {}, key)

    def rows(self, key: str, read: Callable[[Table], T]) -> tuple[T, ...]:
        """Read an array of tables, each of which has what ``read`` asks for and no more."""
        return tuple(_whole(self._below(value, at), read) for at, value in self._each(key, dict))

    def named(self, key: str, read: Callable[[Table], T]) -> dict[str, T]:
        """Read a table of such tables, by their names."""
        above = self.table(key)
        return {name: _whole(above.table(name), read) for name in above.raw}

    def refuse_unknown(self) -> None:
        """Note every key that nobody asked for."""
        for key in self.raw:
            if key not in self.known:
                import difflib  # noqa: PLC0415

                near = difflib.get_close_matches(key, self.known, 1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                self.problem(key, f"unknown key{meant}")

    def _each(self, key: str, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield the values of an array that are of this type, each with its key."""
        for i, value in enumerate(self.get(key, list) or []):
            if isinstance(value, kind):
                yield f"{key}[{i}]", value
            else:
                self.expected(f"{key}[{i}]", _WORDS[kind], value)

    def _below(self, table: Mapping[str, Any], key: str) -> Table:
        return Table(table, self._path(key), self.problems, name=key)

    def _path(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at and key else self.at or key


def _whole(table: Table, read: Callable[[Table], T]) -> T:
    value = read(table)
    table.refuse_unknown()
    return value


_WORDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "a table",
}


def in_words(value: object) -> str:
    """Say what kind of thing a value is."""
    return next((words for kind, words in _WORDS.items() if type(value) is kind), repr(value))


class Spelled(NamedTuple):
    """What JSON has for a value: ``Annotated[X, Spelled(Y, make)]`` is read as a Y, of which ``make`` makes the X."""

    kind: Any
    make: Callable[[Any], Any]


def matching(pattern: str, why: str) -> Callable[[str], str | None]:
    """Return the check of a text that begins as a pattern says; ``why`` is what is wrong with any other."""
    return lambda text: None if re.match(pattern, text) else why


def object_of(data: bytes, where: str, hint: str | None = None) -> dict[str, Any]:
    """Read a JSON object. Raises ``ManifestError``."""
    raw = json_in(data, where, hint)
    if not isinstance(raw, dict):
        raise ManifestError(where, (f"expected an object, found {in_words(raw)}",), hint=hint)
    return raw


def decode(
    kind: type[T],
    raw: object,
    where: str = "",
    *,
    hint: str | None = None,
    more: bool = False,
    whole: bool = False,
) -> T:
    """Return ``raw``, as ``json.loads`` has it, as a ``kind``. Raises ``ManifestError`` with every problem.

    A kind is text, a number, an enumeration, ``X | None``, ``tuple[X, ...]``, ``Mapping[str, X]``, a
    ``NamedTuple`` of such, or ``Annotated[X, check]``, where ``check(value)`` returns what is wrong, else
    None; or what is ``Spelled`` otherwise. What may be None or has a default may be left out, unless
    ``whole``. Keys that are not known are a problem, unless ``more``.
    """
    reader = _RecordReader(more=more, whole=whole)
    value = reader.value(kind, raw, "")
    if reader.problems:
        raise ManifestError(where, tuple(reader.problems), hint=hint)
    return cast("T", value)


def repeated(values: Iterable[T]) -> list[T]:
    """Return what is there more than once, sorted."""
    return sorted(value for value, times in Counter(values).items() if times > 1)  # type: ignore[type-var]


def encode(value: Any) -> Any:  # noqa: ANN401  (any of these)
    """Return a ``NamedTuple``, and all that is in it, as what JSON can hold; also within a dict or a list."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: encode(inner) for key, inner in value.items()}
    return [encode(inner) for inner in value] if isinstance(value, tuple | list) else value


_hints = cache(partial(typing.get_type_hints, include_extras=True))


class _RecordReader:
    def __init__(self, *, more: bool, whole: bool) -> None:
        self.more = more
        self.whole = whole
        self.problems: list[str] = []

    def value(self, kind: Any, raw: object, at: str) -> Any:  # noqa: ANN401  (what ``kind`` says)
        if type(raw) is kind:
            return raw
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin is Annotated:
            return self.checked(inner, raw, at)
        if origin in {Union, types.UnionType}:
            rest = [part for part in inner if part is not types.NoneType]
            return None if raw is None and len(rest) < len(inner) else self.value(rest[0], raw, at)
        if origin is tuple:
            return self.row(inner, raw, at)
        if origin in {dict, Mapping}:
            items = raw.items() if isinstance(raw, dict) else self.wrong(at, "a table", raw, ())
            return {key: self.value(inner[1], value, f"{at}.{key}") for key, value in items}
        return self.plain(kind, raw, at)

    def plain(self, kind: Any, raw: object, at: str) -> Any:  # noqa: ANN401
        if hasattr(kind, "_fields"):
            return self.record(kind, raw, at)
        if isinstance(kind, type) and issubclass(kind, Enum):
            members = {member.value: member for member in kind}
            # Nothing of another type is equal to one, and not everything can be looked up.
            known = type(raw) is str and raw in members
            return members[raw] if known else self.wrong(at, f"one of {', '.join(members)}", raw)
        return raw if kind is Any else self.wrong(at, _WORDS[kind], raw)

    def checked(self, inner: tuple[Any, ...], raw: object, at: str) -> Any:  # noqa: ANN401
        kind, *checks = inner
        before = len(self.problems)
        spelled = checks[0] if isinstance(checks[0], Spelled) else None
        value = self.value(spelled.kind if spelled else kind, raw, at)
        if len(self.problems) > before or value is None:
            return value
        if spelled:
            return spelled.make(value)
        self.problems += [f"{at}: {why}" for check in checks if (why := check(value))]
        return value

    def row(self, inner: tuple[Any, ...], raw: object, at: str) -> tuple[Any, ...]:
        if not isinstance(raw, list):
            return cast("tuple[Any, ...]", self.wrong(at, "an array", raw, ()))
        kinds = inner[:1] * len(raw) if inner[1:] == (...,) else inner
        if len(kinds) != len(raw):
            return cast("tuple[Any, ...]", self.wrong(at, f"an array of {len(kinds)}", raw, ()))
        pairs = enumerate(zip(kinds, raw, strict=True))
        return tuple(self.value(kind, value, f"{at}[{n}]") for n, (kind, value) in pairs)

    def record(self, kind: Any, raw: object, at: str) -> Any:  # noqa: ANN401
        if not isinstance(raw, dict):
            return self.wrong(at or "the file", "a table", raw)
        table = Table(raw, at, self.problems)
        values = {}
        for key, hint in _hints(kind).items():
            table.known.add(key)
            if key in raw:
                values[key] = self.value(hint, raw[key], f"{at}.{key}" if at else key)
            elif self.whole or key not in kind._field_defaults:
                values[key] = None
                if self.whole or types.NoneType not in typing.get_args(hint):
                    table.problem(key, "is required")
        if not self.more:
            table.refuse_unknown()
        return kind(**values)

    def wrong(self, at: str, words: str, raw: object, instead: object = None) -> Any:  # noqa: ANN401
        Table({}, at, self.problems).expected("", words, raw)
        return instead
