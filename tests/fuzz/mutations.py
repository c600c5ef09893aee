"""Change an input so that it stays near to what a parser takes: values of documents, checksums of tars."""

from __future__ import annotations

import copy
import json
import tomllib
from typing import TYPE_CHECKING, Any

import yaml

from fuzz.parts import MARK
from vllm_mods.formats import toml_writer

if TYPE_CHECKING:
    import random

_BLOCK = 512
_MOST_DEPTH = 3000
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, 1.5, float("nan"), float("inf"), "", ".", "..",
    "/", "../x", "/etc/passwd", "a/../b", "\0", "\n", "\r", "\ud800", "\u2028", "²", "١", "a" * 5000, "é", "-", "--x",
    "$(x)", "{", "}", "{{", "%s", "[", "(", "*", "0" * 64, "sha256:", "sha512:00", "https://", "[::1",
    "1" * 5000, "1.0", ">=0.19", "==*", "vllm/x.py", [], {}, [[]], [{}], {"": ""}, [None], ["a", "a"],
)  # fmt: skip


def document(data: bytes, rng: random.Random) -> bytes | None:
    """Change values of a JSON or TOML document, or of a YAML one; None if it is none of them."""
    for read, write in ((json.loads, _json), (_toml, _toml_back), (_yaml, _yaml_back)):
        try:
            value = read(data)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            ValueError,
            RecursionError,
            yaml.YAMLError,
        ):
            continue
        if not isinstance(value, dict | list):
            continue
        try:
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                _change(value, rng)
            return write(value)
        except (ValueError, TypeError, RecursionError, yaml.YAMLError):
            return None
    return None


def _change(value: dict[Any, Any] | list[Any], rng: random.Random) -> None:
    """Put something odd somewhere: in place of a value, beside it, or take it away."""
    places: list[tuple[Any, Any]] = []
    pending: list[Any] = [value]
    while pending:
        one = pending.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            places.append((one, key))
            if isinstance(one[key], dict | list):
                pending.append(one[key])
    if not places:
        return
    holder, key = rng.choice(places)
    what = rng.randrange(8)
    if what == 0:
        del holder[key]
    elif what == 1:
        other, name = rng.choice(places)
        holder[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
    elif what == 2 and isinstance(holder, dict):
        holder[rng.choice(("", "x", "schema", "\n", "a.b", "²"))] = holder.pop(key)
    elif what == 3 and isinstance(holder[key], str) and holder[key]:
        text = holder[key]
        at = rng.randrange(len(text))
        holder[key] = text[:at] + str(rng.choice(ODD)) + text[at + rng.randrange(3) :]
    elif what == 4 and isinstance(holder, list):
        holder += copy.deepcopy(holder[:50])
    elif what == 5 and isinstance(holder[key], int):
        holder[key] = holder[key] + rng.choice((-1, 1, 2**32, -(2**33)))
    elif what == 6 and rng.random() < 0.1:
        deep: Any = holder[key]
        for _ in range(rng.randrange(_MOST_DEPTH)):
            deep = [deep] if what else {"a": deep}
        holder[key] = deep
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD))


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _toml(data: bytes) -> Any:
    return tomllib.loads(data.decode())


def _toml_back(value: Any) -> bytes:
    lines = [f"{toml_writer.key(key)} = {_inline(one)}" for key, one in value.items()]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        inside = (f"{toml_writer.key(key)} = {_inline(one)}" for key, one in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(one) for one in value) + "]"
    return (
        "0" if value is None else json.dumps(value) if isinstance(value, str | bool) else str(value)
    )


def _yaml(data: bytes) -> Any:
    return yaml.safe_load(data.decode())


def _yaml_back(value: Any) -> bytes:
    return str(yaml.safe_dump(value)).encode("utf-8", "surrogatepass")


def summed(data: bytes) -> bytes:
    """Give every block that looks like the header of a tar the checksum that it should have."""
    out = bytearray(data)
    for at in range(0, len(out) - _BLOCK + 1, _BLOCK):
        if out[at + 257 : at + 262] == b"ustar":
            out[at + 148 : at + 156] = b" " * 8
            out[at + 148 : at + 156] = b"%06o\0 " % (sum(out[at : at + _BLOCK]) & 0o777777)
    return bytes(out)


def scattered(data: bytes, rng: random.Random) -> bytes:
    """Change bytes here and there, as a fuzzer without any knowledge does."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(5)
        if what == 0 and out:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif what == 1:
            del out[at : at + rng.choice((1, 1, 4, 64))]
        elif what == 2:
            out[at:at] = out[at : at + rng.choice((1, 8, 64))] * rng.choice((1, 1, 2, 40))
        elif what == 3:
            out[at:at] = str(rng.choice(ODD)).encode("utf-8", "surrogatepass")
        else:
            start = rng.randrange(len(out) + 1)
            out[at:at] = out[start : start + rng.randrange(64)]
    return bytes(out)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return a changed input, of any kind."""
    if MARK in data:
        texts = data.split(MARK)
        at = rng.randrange(len(texts))
        texts[at] = mutated(texts[at], rng)
        return MARK.join(texts)
    if rng.random() < 0.6 and (made := document(data, rng)) is not None:
        return made
    out = scattered(data, rng)
    return summed(out) if b"ustar" in out else out
