"""The keys of mod.toml and of a pairing, from what their readers ask for."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from reference.markdown import code, plain, table
from vllm_mods.base.errors import ManifestError
from vllm_mods.formats import manifest, pairing, schema
from vllm_mods.formats.schema import Table, in_words

if TYPE_CHECKING:
    from collections.abc import Callable


class _Asked(Table):
    """A table that notes what it is asked for, and has one of everything below it."""

    asked: dict[str, tuple[str, str]]

    def note(self, key: str, kind: str, *, required: bool = False) -> None:
        at = f"{self.at}.{key}" if self.at else key
        self.asked.setdefault(at, (kind, "yes" if required else ""))

    def get(self, key: str, kind: Any, *, required: bool = False) -> Any:
        self.note(key, in_words(kind()), required=required)
        return super().get(key, kind, required=required)

    def match(self, key: str, pattern: str, words: str, *, required: bool = False) -> str:
        self.note(key, words, required=required)
        return super().match(key, pattern, words, required=required)

    def choice(
        self, key: str, allowed: tuple[str, ...], default: str, *, required: bool = False
    ) -> str:
        unless = "" if required else f"; {code(default)} unless said"
        self.note(key, f"{', '.join(map(code, allowed))}{unless}", required=required)
        return super().choice(key, allowed, default, required=required)

    def strings(self, key: str, pattern: str | None = None, words: str = "") -> tuple[str, ...]:
        self.note(key, f"an array; each {words or 'a string'}")
        return super().strings(key, pattern, words)

    def path(self, key: str, *, required: bool = False) -> str:
        self.note(key, "a relative path that stays in its folder", required=required)
        return super().path(key, required=required)

    def paths(self, key: str) -> tuple[str, ...]:
        self.note(key, "an array; each a relative path that stays in its folder")
        return super().paths(key)

    def specifier(self, key: str) -> str:
        self.note(key, "a version specifier (PEP 440)", required=True)
        return super().specifier(key)

    def table(self, key: str) -> Table:
        self.note(key, "a table")
        return self._below({}, key)

    def rows(self, key: str, read: Callable[[Table], Any]) -> tuple[Any, ...]:
        return (read(self._below({}, f"{key}[]")),)

    def _below(self, _table: object, key: str) -> Table:
        at = f"{self.at}.{key}" if self.at else key
        below = type(self)({}, at, self.problems)
        below.asked = self.asked
        return below


def of_mods() -> str:
    """Return a row per key of a mod.toml."""
    return _table(asked(manifest.from_toml))


def of_pairings() -> str:
    """Return a row per key of a pairing."""
    return _table(asked(pairing.parse))


def asked(reader: Callable[[bytes, str], object]) -> dict[str, tuple[str, str]]:
    """Return each key that a reader of manifests asks for: what it takes, and if it must be there.

    It is asked to read an empty file, and refuses that when it has asked for everything.
    """
    rows: dict[str, tuple[str, str]] = {}

    def recorder(*arguments: Any, **named: Any) -> _Asked:
        made = _Asked(*arguments, **named)
        made.asked = rows
        return made

    with mock.patch.object(schema, "Table", recorder), contextlib.suppress(ManifestError):
        reader(b"", "empty")
    inner = {key for key, (kind, _) in rows.items() if kind != "a table"}
    kept = [key for key in rows if key in inner or not any(k.startswith(f"{key}.") for k in inner)]
    return {key: rows[key] for key in sorted(kept, key=lambda key: key.count("."))}


def _table(rows: dict[str, tuple[str, str]]) -> str:
    return table(
        ("key", "value", "required"),
        (
            (code(key), kind if "`" in kind else plain(kind), required)
            for key, (kind, required) in rows.items()
        ),
    )
