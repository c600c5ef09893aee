"""JSON, TOML, headers and paths that anybody may have written: a value, or one kind of error whatever is wrong. Pure.

The parsers recurse, so text that is nested deeply enough would come out as a ``RecursionError``; and
JSON can spell half a character, which no file name and no file can hold.
"""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

from vllm_mods.base import limits
from vllm_mods.base.errors import ManifestError

DEEP = "it is nested too deeply"


def json_of(data: bytes | str, *, once: bool = False) -> Any:  # noqa: ANN401  (as ``json.loads`` has it)
    """Read JSON in UTF-8. Raises ``ValueError`` for anything else, and for text that is no Unicode.

    ``once`` refuses a key that is there twice, in capitals or not: Go takes either spelling, and the last of them.
    """
    text = data if isinstance(data, str) else data.decode().removeprefix("\ufeff")
    try:
        value = json.loads(text, object_pairs_hook=_once if once else None)
    except RecursionError as error:
        raise ValueError(DEEP) from error
    if "\\ud" in text.lower():  # a surrogate, as half of a character is spelt
        texts = (one for level in _levels(value) for one in level if isinstance(one, str))
        if not all(map(is_whole, texts)):
            raise ValueError("it has half of a surrogate pair")
    return value


def json_in(data: bytes, where: str, hint: str | None = None) -> Any:  # noqa: ANN401  (as ``json.loads`` has it)
    """Read JSON; ``where`` names it in messages. Raises ``ManifestError``."""
    try:
        return json_of(data)
    except ValueError as error:
        raise ManifestError(where, (f"not JSON: {error}",), hint=hint) from error


def number_of(text: str) -> int | None:
    """Read a number out of a header, which may hold digits of any script, and any number of them."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def is_plain_path(path: str) -> bool:
    """Tell whether a path has nothing in it that leads elsewhere: no ``.`` and ``..``, nothing empty, no NUL."""
    return "\0" not in path and {"", ".", ".."}.isdisjoint(path.split("/"))


def is_whole(text: str) -> bool:
    """Tell whether a text has no half of a character in it, but for bytes that are not UTF-8."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def toml_of(data: bytes, where: str) -> dict[str, Any]:
    """Read TOML; ``where`` names it in messages. Raises ``ManifestError``."""
    if len(data) > limits.MANIFEST:
        raise ManifestError(where, (f"has more than {limits.MANIFEST}",))
    try:
        text = data.decode("utf-8")
        if any(line.count(".") > limits.DOTS for line in text.splitlines()):
            raise ManifestError(where, (f"a line has more than {limits.DOTS}",))
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ManifestError(where, (f"not UTF-8: byte {error.start}",)) from error
    except RecursionError as error:
        raise ManifestError(where, (f"not a manifest: {DEEP}",)) from error
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise ManifestError(
            where, (f"not TOML: {error}",), hint="https://toml.io/en/v1.0.0 has the syntax"
        ) from error
    if is_deep(table):
        raise ManifestError(where, (f"not a manifest: {DEEP}",))
    return table


def is_deep(value: object) -> bool:
    """Tell whether a value is nested more than ``limits.NESTING``."""
    return any(depth == limits.NESTING for depth, _ in enumerate(_levels(value)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in pairs:
        folded = key.casefold()
        if folded in seen:
            raise ValueError(f"{folded!r} appears twice")
        seen.add(folded)
    return dict(pairs)


def _levels(value: object) -> Iterator[list[object]]:
    """Yield a value, then all that stands in it, level by level; a key stands beside its value."""
    level = [value]
    while level:
        yield level
        nested = [one for one in level if isinstance(one, dict | list | tuple)]
        parts = ((*one, *one.values()) if isinstance(one, dict) else one for one in nested)
        level = [inner for part in parts for inner in part]
