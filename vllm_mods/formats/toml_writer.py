"""Values as TOML, which the standard library only reads. Pure."""

import datetime as dt
import json
import re
from collections.abc import Mapping


def key(name: str) -> str:
    """Write a key, quoted only where it has to be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else value(name)


def value(thing: object) -> str:
    """Write a value on one line. Raises ``TypeError`` for what TOML has no form for."""
    if isinstance(thing, str):
        return _quoted(thing)
    if isinstance(thing, dict):
        inside = ", ".join(f"{key(name)} = {value(one)}" for name, one in thing.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(thing, (list, tuple)):
        return f"[{', '.join(value(one) for one in thing)}]"
    if isinstance(thing, (int, float)):
        return repr(thing).lower()  # `True` is the only one with a capital in Python
    if isinstance(thing, (dt.date, dt.time)):
        return thing.isoformat()
    raise TypeError(f"{type(thing).__name__} has no form in TOML")


def rows(values: Mapping[str, object]) -> list[str]:
    """Write keys with their values, each on a line."""
    return [f"{key(name)} = {value(one)}" for name, one in values.items()]


def lines(text: str) -> str:
    """Write text over several lines as it is, where TOML can hold it so."""
    is_plain = not text.endswith("'") and "'''" not in text
    if is_plain and "\n" in text and not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        return f"'''\n{text}'''"
    return _quoted(text)


def _quoted(text: str) -> str:
    if '"' in text and re.fullmatch(r"[^'\x00-\x1f\x7f]*", text):
        return f"'{text}'"  # JSON stays readable
    # TOML has JSON's escapes, and wants DEL escaped too
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
