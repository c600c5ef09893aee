"""A TOML table that is read key by key: what is wrong is collected with its key path.

What manifests of mods, pairings and templates have in common. Nothing raises but ``reading``, at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.versions import in_range

# PEP 440 in outline. packaging would cost a fifth of the time that `apply` has on a known tree.
_SPECIFIER = r"\s*(===|==|!=|~=|<=|>=|<|>)\s*\d[\w.*+!-]*\s*\Z"
NAME = r"[a-z0-9][a-z0-9._-]*\Z"
NAME_IN_WORDS = "lower case letters, digits, '.', '_' and '-'"
BUNDLED = "vllm-mods"
"""The owner of what comes with the tool: no library of others has that name."""
SECRET = r"(?i).*_(TOKEN|KEY|SECRET|PASSWORD)\Z"  # noqa: S105  (a pattern)
"""Names of variables whose value nobody may read in an image, or in a file that is passed on."""
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*\Z"
_T = TypeVar("_T")
Scalar = str | int | float | bool


@contextmanager
def reading(
    raw: Mapping[str, Any],
    where: str,
    schema: int,
    *,
    at: str = "",
    checked: bool = False,
    hint: str | None = None,
) -> Iterator[Table]:
    """Give the table of a whole file, and raise ``ManifestError`` in the end with every problem found in it.

    Another ``schema`` is one, and so is each key that nobody asked for. ``checked`` as of a ``Table``.
    """
    top = Table(raw, at, [], checked=checked)
    found = top.get("schema", int, required=True)
    if found is not None and found != schema:
        top.problem("schema", f"this version of vllm-mods reads schema {schema}, not {found}")
    yield top
    top.refuse_unknown()
    if top.problems:
        raise ManifestError(where, tuple(top.problems), hint=hint)


class Table:
    """A TOML table with its key path; problems go to one list for the whole manifest."""

    def __init__(
        self, table: Mapping[str, Any], at: str, problems: list[str], *, checked: bool = False
    ) -> None:
        """Take a parsed table; ``checked`` says that its words were held against patterns before."""
        self.raw = table
        self.at = at
        self.name = ""
        self.problems = problems
        self.checked = checked
        self.known: set[str] = set()
        self.bad: set[str] = set()

    def problem(self, key: str, why: str) -> None:
        """Note what is wrong with a key, or with the table itself."""
        self.bad.add(key)
        self.problems.append(f"{self._path(key)}: {why}")

    def get(self, key: str, kind: type[_T], *, required: bool = False) -> _T | None:
        """Return a value of this type, ``None`` if it is not there or another."""
        self.known.add(key)
        value = self.raw.get(key)
        if value is None:
            if required:
                self.problem(key, "is required")
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.problem(key, f"expected {_WORDS[kind]}, found {in_words(value)}")
            return None
        if required and value == "":
            self.problem(key, "is empty")
        return cast("_T", value)

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text, an empty one if there is none."""
        return self.get(key, str, required=required) or ""

    def match(self, key: str, pattern: str, words: str, *, required: bool = False) -> str:
        """Return text that matches; ``words`` say what was expected."""
        text = self.text(key, required=required)
        if text and not self._matches(pattern, text):
            self.problem(key, f"expected {words}, found {text!r}")
        return text

    def choice(
        self, key: str, allowed: tuple[str, ...], default: str, *, required: bool = False
    ) -> str:
        """Return one of a few words."""
        text = self.get(key, str)
        if required and key not in self.raw:
            self.problem(key, "is required")
        elif text is not None and text not in allowed:
            self.problem(key, f"expected one of {', '.join(allowed)}, found {text!r}")
        return text or default

    def strings(self, key: str, pattern: str | None = None, words: str = "") -> tuple[str, ...]:
        """Return an array of texts that match."""
        found = []
        for at, value in self._each(key, str):
            if pattern is not None and not self._matches(pattern, value):
                self.problem(at, f"expected {words}, found {value!r}")
            else:
                found.append(value)
        return tuple(found)

    def path(self, key: str, *, required: bool = False) -> str:
        """Return a relative path that stays in its folder."""
        text = self.text(key, required=required)
        self._check_path(key, text)
        return text

    def paths(self, key: str) -> tuple[str, ...]:
        """Return an array of such paths."""
        found = self.strings(key)
        for i, text in enumerate(found):
            self._check_path(f"{key}[{i}]", text)
        return found

    def _check_path(self, key: str, text: str) -> None:
        if text.startswith("/") or "\\" in text:
            self.problem(key, f"expected a relative path with '/', found {text!r}")
        elif ".." in text.split("/"):
            self.problem(key, f"{text!r} leads out of its folder")
        elif "\0" in text:
            self.problem(key, f"{text!r} is no path")

    def specifier(self, key: str) -> str:
        """Return a PEP 440 specifier, which has to be there."""
        text = self.text(key, required=True)
        for part in text.split(",") if text else []:
            if not self._matches(_SPECIFIER, part):
                self.problem(key, f"{part.strip()!r} is not a version specifier such as '>=0.20'")
                return text
        if not self.checked:
            self.check_range(key, text)
        return text

    def check_range(self, key: str, specifier: str) -> None:
        """Note what only looks like a specifier: packaging reads it, where there is more to it than numbers."""
        try:
            in_range("0", specifier)
        except ValueError as error:
            self.problem(key, str(error))

    def scalar(self, key: str, value: object) -> Scalar:
        """Return a single value."""
        if not isinstance(value, Scalar):
            self.problem(key, f"expected text, a number, true or false, found {in_words(value)}")
            return ""
        return value

    def variables(self) -> dict[str, str]:
        """Return the table itself as environment variables."""
        for key, value in self.raw.items():
            if not self._matches(_VARIABLE, key):
                self.problem(key, "is not the name of an environment variable")
            elif isinstance(value, str) and "\0" in value:
                self.problem(key, "has a NUL, which no environment has")
        values = {key: self.get(key, str) for key in self.raw}
        return {key: value for key, value in values.items() if value is not None}

    def table(self, key: str) -> Table:
        """Return the table below a key, an empty one if it is not there."""
        return self._below(self.get(key, dict) or {}, key)

    def tables(self, key: str) -> tuple[Table, ...]:
        """Return an array of tables."""
        return tuple(self._below(value, at) for at, value in self._each(key, dict))

    def rows(self, key: str, read: Callable[[Table], _T]) -> tuple[_T, ...]:
        """Read an array of tables, each of which has what ``read`` asks for and no more."""
        return tuple(_whole(table, read) for table in self.tables(key))

    def named(self, key: str, read: Callable[[Table], _T]) -> dict[str, _T]:
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

    def _each(self, key: str, kind: type[_T]) -> Iterator[tuple[str, _T]]:
        """Yield the values of an array that are of this type, each with its key."""
        for i, value in enumerate(self.get(key, list) or []):
            if isinstance(value, kind):
                yield f"{key}[{i}]", value
            else:
                self.problem(f"{key}[{i}]", f"expected {_WORDS[kind]}, found {in_words(value)}")

    def _matches(self, pattern: str, text: str) -> bool:
        return self.checked or re.match(pattern, text) is not None

    def _below(self, table: Mapping[str, Any], key: str) -> Table:
        below = Table(table, self._path(key), self.problems, checked=self.checked)
        below.name = key
        return below

    def _path(self, key: str) -> str:
        return f"{self.at}.{key}" if self.at and key else self.at or key


def _whole(table: Table, read: Callable[[Table], _T]) -> _T:
    found = read(table)
    table.refuse_unknown()
    return found


_WORDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    list: "an array",
    dict: "a table",
}


def in_words(value: object) -> str:
    """Say what kind of thing a value is."""
    return next((words for kind, words in _WORDS.items() if type(value) is kind), repr(value))
