"""Values of flags: numbers, choices, JSON and its keys, against what the tree says of them."""

import ast
import contextlib
import difflib
import json
import math
import operator
import re
from collections.abc import Iterable, Iterator
from typing import Any

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.untrusted import json_of, number_of
from vllm_mods.serving import configs, hints, registry
from vllm_mods.serving.configs import ConfigField
from vllm_mods.serving.faults import ServeFault, note
from vllm_mods.serving.shape import FlagShape
from vllm_mods.serving.source import ClassPlace, ModuleSources

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_OBJECT = re.compile(r"\s*{.*}\s*", re.DOTALL)
_CURLY = "\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb"
# How many names are listed beside the one that was probably meant.
_FEW = 8
_TRUTHS = frozenset(["0", "1", "t", "f", "y", "n", "true", "false", "yes", "no", "on", "off"])

_IN_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "dict": "a JSON object",
    **dict.fromkeys(("list", "tuple", "set"), "a list"),
}
_EXACTLY = {"list": list, "tuple": list, "set": list, "dict": dict, "str": str}


def problems(sources: ModuleSources, shape: FlagShape, text: str) -> Iterator[ServeFault]:
    """Yield what is wrong with one value of a flag, as it stands on the command line."""
    is_json = shape.kind in {"json", "json-or-text"}
    try:
        value = read(shape, text)
    except ValueError as error:
        if is_json:
            yield ServeFault(FindingCode.JSON_INVALID, "", f"not JSON: {_why_no_json(text, error)}")
        else:
            yield ServeFault(FindingCode.VALUE_TYPE, "", str(error))
        return
    if value is None:
        return
    if is_json:
        if shape.config is not None and isinstance(value, dict):
            yield from object_problems(sources, shape.config, value)
        elif shape.config is not None and shape.kind == "json":
            message = f"{text} must be a JSON object, of the fields of {shape.config.node.name}"
            yield ServeFault(FindingCode.JSON_VALUE, "", message)
        elif value == text and shape.cls and shape.field:  # it was not JSON
            yield from _field_problems(sources, shape.cls, shape.field, value, shape.field.name)
        return
    if shape.choices is not None or shape.open:
        yield from choice_problems(value, shape.choices or (), shape.open)
    if isinstance(value, (int, float)) and shape.cls and shape.field:
        yield from _in_bounds(sources, shape.cls, shape.field, value)


def choice_problems(
    value: object, choices: Iterable[object], open_: str = ""
) -> Iterator[ServeFault]:
    """Yield a problem if a value is none of the choices; ``open_`` is why there may be others."""
    offered = [str(one) for one in choices]
    if str(value) in offered:
        return
    if open_:
        message = f"it is unknown whether {value!r} is accepted: {open_}"
        yield note(FindingCode.VALUE_UNCLEAR, "", message)
        return
    near = nearest(str(value), offered)
    message = f"{value!r} is not accepted: {list_names(offered, near)}"
    yield ServeFault(FindingCode.VALUE_CHOICE, "", message, near)


def nearest(word: str, names: Iterable[str]) -> str:
    """Return the name that was probably meant, ``""`` if none is near."""
    plain = {name.lower().replace("_", "-"): name for name in names}
    close = difflib.get_close_matches(word.lower().replace("_", "-"), plain, 1, 0.7)
    return plain[close[0]] if close else ""


def list_names(offered: list[str], near: str) -> str:
    """Say what there is; of many only the one that was probably meant."""
    every = f"expected {', '.join(offered)}"
    if not near:
        return every
    return f"did you mean {near!r}?" + (f" {every}" if len(offered) <= _FEW else "")


def object_problems(
    sources: ModuleSources, cls: ClassPlace, data: dict[str, Any], at: str = ""
) -> Iterator[ServeFault]:
    """Yield the keys of a JSON object that its config class lacks, and values of another type."""
    fields = configs.fields(sources, cls)
    anything = configs.takes_any_key(sources, cls)
    settable = {name for name, field in fields.items() if field.init}
    for key, value in data.items():
        where = f"{at}{key}"
        if key in settable:
            yield from _field_problems(sources, cls, fields[key], value, where)
        elif anything is not None:
            message = f"{cls.node.name} has no {where!r}, but this is not certain: {anything}"
            yield note(FindingCode.JSON_UNCLEAR, "", message)
        elif key in fields:
            message = f"{cls.node.name} sets {where!r} itself: leave this key out"
            yield ServeFault(FindingCode.JSON_KEY, "", message)
        else:
            near = nearest(key, settable)
            meant = f"; did you mean {near!r}?" if near else ""
            message = f"{cls.node.name} has no {where!r}{meant}"
            yield ServeFault(FindingCode.JSON_KEY, "", message, near)


def _why_no_json(text: str, error: ValueError) -> str:
    if any(char in text for char in _CURLY):
        return f"typographic quotes in {text}"
    if "{{" in text or ("}}" in text and "{" not in text):
        return f"doubled braces in {text}, which belong only in the template of a recipe"
    if "'" in text and '"' not in text:
        return f"single quotes in {text}; JSON has double ones"
    if '"' not in text and re.search(r"[A-Za-z]", text):
        return f"{text} has lost its quotes; put the whole value in single quotes"
    return f"{error} in {text}"


def read(shape: FlagShape, text: str) -> Any:
    """Return what the parser makes of one value. Raises ``ValueError``."""
    if shape.optional and text in {"", "None"}:
        return None
    if shape.kind == "text" or (shape.kind == "json-or-text" and not _OBJECT.fullmatch(text)):
        return text
    if shape.kind in {"json", "json-or-text"}:
        return json_of(_plain_json(text) if shape.human_json else text)
    try:
        if shape.kind == "human-auto" and text.strip().lower() in {"-1", "auto"}:
            return -1
        if shape.kind.startswith("human"):
            return _human(text)
        return int(text) if shape.kind == "int" else float(text)
    except ValueError as error:
        what = _IN_WORDS.get(shape.kind, "a whole number, optionally with k, M or G (32k, 4M)")
        raise ValueError(f"{text!r} is not {what}") from error


def _plain_json(text: str) -> str:
    """Return JSON with its ``32k`` written out. Raises ``ValueError``."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    pattern = rf"\b{_HUMAN.pattern}\b"
    parts[::2] = [re.sub(pattern, lambda number: str(_human(number[0])), one) for one in parts[::2]]
    return "".join(parts)


def _human(text: str) -> int:
    """Read ``32k``, ``1.5M`` and plain numbers. Raises ``ValueError``."""
    text = text.strip()
    suffixed = _HUMAN.fullmatch(text)
    if suffixed is None:
        return int(text)
    if suffixed[2] in _DECIMAL:
        number = float(suffixed[1]) * _DECIMAL[suffixed[2]]
        if math.isinf(number):
            raise ValueError(f"{text} is too large a number")
        return int(number)
    return int(suffixed[1]) * _BINARY[suffixed[2]]


def _early(sources: ModuleSources, cls: ClassPlace, field: ConfigField) -> list[configs.Validator]:
    return [one for one in configs.validators(sources, cls, field.name) if one.early]


def _in_bounds(
    sources: ModuleSources, cls: ClassPlace, field: ConfigField, value: float, at: str = ""
) -> Iterator[ServeFault]:
    if not all(one.lets_none_through for one in _early(sources, cls, field)):
        return
    if not all(getattr(operator, name)(value, bound) for name, bound in field.bounds):
        asked = " and ".join(f"{configs.BOUNDS[name]} {bound}" for name, bound in field.bounds)
        where = f"{at!r}: " if at else ""
        message = f"{where}{value} is out of range: it must be {asked}"
        yield ServeFault(FindingCode.VALUE_RANGE, "", message)


def _field_problems(
    sources: ModuleSources, cls: ClassPlace, field: ConfigField, value: Any, at: str
) -> Iterator[ServeFault]:
    """Yield what is wrong with one value in a JSON object, as far as its type is plain."""
    if "SkipValidation" in ast.unparse(field.annotation.node):
        return  # pydantic takes anything
    early = _early(sources, cls, field)
    kinds = hints.hints(sources, field.annotation)
    config = hints.config_class(sources, kinds)
    is_sure = all(one.lets_none_through for one in early)
    if isinstance(value, dict) and config is not None:
        # a validator may make it of what is given, key by key
        makes = rf"\b{config.node.name}\(\*\*value\)"
        if is_sure or any(re.search(makes, ast.unparse(one.at.node)) for one in early):
            yield from object_problems(sources, config, value, f"{at}.")
        return
    if early and (value is None or not is_sure):
        yield from _early_problems(sources, cls, field, value, at)
        return
    wrong = _mismatch(sources, kinds, value)
    if wrong is not None:
        near = nearest(str(value), wrong)
        message = f"{at!r}: {json.dumps(value)} is not accepted: {list_names(wrong, near)}"
        yield ServeFault(FindingCode.JSON_VALUE, "", message, near)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _in_bounds(sources, cls, field, value, at)


def _early_problems(
    sources: ModuleSources, cls: ClassPlace, field: ConfigField, value: object, at: str
) -> Iterator[ServeFault]:
    """Yield a name that no validator in front makes one of the enumerated names of."""
    kinds = hints.hints(sources, field.annotation)
    others = [one.place for one in kinds if one.kind != "literal" and one.name != "None"]
    plain = all(place and configs.is_enum(sources, place) for place in others)
    names = registry.named(sources, cls, field) if plain and isinstance(value, str) else None
    if names is not None and not names.has(str(value)):
        for fault in choice_problems(value, names.names):
            yield fault._replace(code=FindingCode.JSON_VALUE, message=f"{at!r}: {fault.message}")


def _mismatch(
    sources: ModuleSources, kinds: tuple[hints.Hint, ...], value: object
) -> list[str] | None:
    """Return what a value may be if it is none of it; ``None`` if it fits or can't be told."""
    offered: list[str] = []
    for hint in kinds:
        if hint.kind == "literal":
            if value in hint.values:
                return None
            offered += [str(one) for one in hint.values]
        elif hint.place and configs.is_enum(sources, hint.place):
            members = configs.members(hint.place).values()
            typed = [one for one in members if not isinstance(one, ast.Tuple)]
            known = [one.value if isinstance(one, ast.Constant) else None for one in typed]
            if None in known or value in known or number_of(str(value)) in known:
                return None
            offered += map(str, known)
        elif hint.place and configs.is_dataclass(sources, hint.place):
            offered.append("a JSON object")
        elif hint.kind == "other" and hint.name.startswith("Callable"):
            continue  # nothing in JSON is one
        elif hint.kind != "builtin" or (_fits(hint.name, value) and _holds(sources, hint, value)):
            return None
        elif hint.name != "None":
            offered.append(_IN_WORDS[hint.name])
    return offered or None


def _fits(name: str, value: object) -> bool:
    """Tell whether pydantic would take a JSON value for a builtin type, or make one of it."""
    if name == "None" or value is None:
        return name == "None" and value is None
    if name in _EXACTLY:
        return isinstance(value, _EXACTLY[name])
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return bool(str(float(value)))
        return name == "bool" and value.lower() in _TRUTHS
    if name == "bool" or not isinstance(value, (int, float)):
        return value in (0, 1)
    return name == "float" or isinstance(value, int) or value.is_integer()


def _holds(sources: ModuleSources, hint: hints.Hint, value: object) -> bool:
    """Tell whether what a list or an object holds is of its type, as far as that is plain."""
    if not hint.args or not isinstance(value, (list, dict)) or hint.name == "tuple":
        return True
    inner = hints.hints(sources, hint.args[-1])
    held = value.values() if isinstance(value, dict) else value
    return all(_mismatch(sources, inner, one) is None for one in held)


def adapter_problems(sources: ModuleSources, shape: FlagShape, text: str) -> Iterator[ServeFault]:
    """Yield what is wrong with an adapter: ``name=path`` or an object. Its own action reads it."""
    if not text or ("=" in text and "," not in text):
        return
    if not _OBJECT.fullmatch(text):
        message = f"{text} is neither name=path nor a JSON object"
        yield ServeFault(FindingCode.JSON_INVALID, "", message)
        return
    many = hints.hints(sources, shape.field.annotation) if shape.field else ()
    inner = next((hint.args[0] for hint in many if hint.name == "list" and hint.args), None)
    cls = next((h.place for h in hints.hints(sources, inner) if h.place), None) if inner else None
    wrong = list(problems(sources, FlagShape("json", config=cls), text))
    yield from wrong
    for name, field in configs.fields(sources, cls).items() if cls and not wrong else ():
        if field.is_required and name not in json_of(text):
            yield ServeFault(FindingCode.JSON_KEY, "", f"{name!r} is missing in {text}")
