"""Config classes of the tree: dataclasses with their fields, and enums with their members."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from vllm_mods.serve.source import ModuleSources, SourcePlace, dotted

# How pydantic names the bounds of a number, and how people write them.
BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class ConfigField(NamedTuple):
    """A field of a dataclass. ``init`` is False where the constructor does not take it."""

    name: str
    annotation: SourcePlace
    doc: str
    init: bool
    bounds: tuple[tuple[str, float], ...]


def is_dataclass(sources: ModuleSources, cls: SourcePlace) -> bool:
    """Tell whether the class itself, or one it inherits from, is decorated as a dataclass."""
    return any(_decorated(one) for one in sources.bases(cls))


def fields(sources: ModuleSources, cls: SourcePlace) -> dict[str, ConfigField]:
    """Return the fields of a dataclass by name, those of its bases first."""
    found: dict[str, ConfigField] = {}
    for one in reversed(tuple(sources.bases(cls))):
        found.update((field.name, field) for field in _own_fields(one))
    return found


def takes_any_key(sources: ModuleSources, cls: SourcePlace, *, early: bool = True) -> str | None:
    """Return why a class may take keys that are no fields of it; ``None`` if it cannot.

    Not ``early``: what changes the keys first has done so.
    """
    for one in sources.bases(cls):
        assert isinstance(one.node, ast.ClassDef)  # noqa: S101  (bases yields no other)
        for member in one.node.body:
            if isinstance(member, ast.FunctionDef):
                if member.name == "__init__":
                    return f"{one.node.name} has an __init__ of its own"
                if early and any(
                    "model_validator" in text and "before" in text for text in _marks(member)
                ):
                    return f"{one.node.name}.{member.name} may change the keys first"
        if any("extra=" in text and "forbid" not in text for text in _marks(one.node)):
            return f"{one.node.name} takes extra keys"
    return None


def validators(
    sources: ModuleSources, cls: SourcePlace, name: str, *, late: bool = False
) -> tuple[ast.FunctionDef, ...]:
    """Return the functions that may change what is given for a field before its type is checked.

    With ``late`` those after that too.
    """
    found = []
    for one in sources.bases(cls):
        assert isinstance(one.node, ast.ClassDef)  # noqa: S101  (bases yields no other)
        for member in one.node.body:
            if not isinstance(member, ast.FunctionDef):
                continue
            for mark in member.decorator_list:
                if not isinstance(mark, ast.Call) or "validator" not in (dotted(mark.func) or ""):
                    continue
                named = [arg.value for arg in mark.args if isinstance(arg, ast.Constant)]
                mode = _keyword(mark, "mode")
                whole = "model_validator" in (dotted(mark.func) or "")
                early = isinstance(mode, ast.Constant) and mode.value in {"before", "wrap", "plain"}
                early = early or (late and not whole)
                if early and (whole or name in named or "*" in named):
                    found.append(member)
    return tuple(found)


def lets_none_through(validator: ast.FunctionDef) -> bool:
    """Tell whether a validator only keeps ``None`` from being checked and hands on the rest."""
    called = {dotted(one.func) for one in ast.walk(validator) if isinstance(one, ast.Call)}
    marks = {dotted(one.func) for one in validator.decorator_list if isinstance(one, ast.Call)}
    return called - marks == {"handler"}


def is_enum(sources: ModuleSources, cls: SourcePlace) -> bool:
    """Tell whether a class is an enumeration."""
    names = (
        (dotted(base) or "").rpartition(".")[2]
        for one in sources.bases(cls)
        if isinstance(one.node, ast.ClassDef)
        for base in one.node.bases
    )
    return any(name.endswith(("Enum", "Flag")) for name in names)


def is_protocol(cls: SourcePlace) -> bool:
    """Tell whether a class says only what others have."""
    bases = cls.node.bases if isinstance(cls.node, ast.ClassDef) else []
    return any((dotted(base) or "").rpartition(".")[2] == "Protocol" for base in bases)


def members(cls: SourcePlace) -> dict[str, object]:
    """Return the members of an enumeration; the value is ``None`` where it is computed.

    It is ``()`` for a tuple of others, which nobody can type.
    """
    assert isinstance(cls.node, ast.ClassDef)  # noqa: S101  (the caller asked is_enum)
    return {
        target.id: node.value.value
        if isinstance(node.value, ast.Constant)
        else ()
        if isinstance(node.value, ast.Tuple)
        else None
        for node in cls.node.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    }


def _decorated(cls: SourcePlace) -> bool:
    assert isinstance(cls.node, ast.ClassDef)  # noqa: S101  (bases yields no other)
    for mark in cls.node.decorator_list:
        called = mark.func if isinstance(mark, ast.Call) else mark
        if (dotted(called) or "").rpartition(".")[2] in {"config", "dataclass"}:
            return True
    return False


@lru_cache(maxsize=512)
def _own_fields(cls: SourcePlace) -> tuple[ConfigField, ...]:
    return tuple(_read_fields(cls))


def _read_fields(cls: SourcePlace) -> Iterator[ConfigField]:
    assert isinstance(cls.node, ast.ClassDef)  # noqa: S101  (bases yields no other)
    body = cls.node.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(node.annotation):
            continue
        call = node.value if isinstance(node.value, ast.Call) else None
        init = _keyword(call, "init")
        yield ConfigField(
            name=node.target.id,
            annotation=SourcePlace(cls.path, node.annotation),
            doc=_text(after),
            init=not (isinstance(init, ast.Constant) and init.value is False),
            bounds=tuple(_bounds(call)),
        )


def _bounds(call: ast.Call | None) -> Iterator[tuple[str, float]]:
    for name in BOUNDS:
        value = _keyword(call, name)
        try:
            bound = None if value is None else ast.literal_eval(value)
        except ValueError:
            continue  # a computed bound
        if isinstance(bound, (int, float)):
            yield name, bound


def _keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    if call is None:
        return None
    return next((one.value for one in call.keywords if one.arg == name), None)


def _marks(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    return [ast.unparse(mark) for mark in node.decorator_list]


def _text(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return " ".join(value.value.split())
    return ""
