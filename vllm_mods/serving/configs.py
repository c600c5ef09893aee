"""Config classes of the tree: dataclasses with their fields, and enums with their members."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import source

# How pydantic names the bounds of a number, and how people write them.
BOUNDS = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}


class ConfigField(NamedTuple):
    """A field of a dataclass. ``init`` is False where the constructor does not take it; ``is_required`` without a default."""

    name: str
    annotation: source.AnyPlace
    doc: str
    init: bool
    is_required: bool
    bounds: tuple[tuple[str, float], ...]


class Validator(NamedTuple):
    """A function that pydantic calls: ``early``, before the types are checked, or not; ``whole`` gets all fields."""

    at: source.FunctionPlace
    early: bool
    whole: bool

    @property
    def lets_none_through(self) -> bool:
        """Whether it only keeps ``None`` from being checked and hands on the rest."""
        function = self.at.node
        called = {dotted(one.func) for one in ast.walk(function) if isinstance(one, ast.Call)}
        marks = {dotted(one.func) for one in function.decorator_list if isinstance(one, ast.Call)}
        return called - marks == {"handler"}


def is_dataclass(sources: source.ModuleSources, cls: source.ClassPlace) -> bool:
    """Tell whether the class itself, or one it inherits from, is decorated as a dataclass."""
    marks = (mark for one in sources.bases(cls) for mark in one.node.decorator_list)
    return any(source.last_name(mark) in {"config", "dataclass"} for mark in marks)


def fields(sources: source.ModuleSources, cls: source.ClassPlace) -> dict[str, ConfigField]:
    """Return the fields of a dataclass by name, those of its bases first."""
    return {field.name: field for one in reversed(sources.bases(cls)) for field in _own_fields(one)}


def takes_any_key(sources: source.ModuleSources, cls: source.ClassPlace) -> str | None:
    """Return why a class may take keys that are no fields of it; ``None`` if it cannot."""
    for base in sources.bases(cls):
        for member in base.node.body:
            if isinstance(member, ast.FunctionDef):
                if member.name == "__init__":
                    return f"{base.node.name} has its own __init__"
                if any("model_validator" in text and "before" in text for text in _marks(member)):
                    return f"{base.node.name}.{member.name} may change the keys first"
        if any("extra=" in text and "forbid" not in text for text in _marks(base.node)):
            return f"{base.node.name} accepts extra keys"
    return None


def validators(
    sources: source.ModuleSources, cls: source.ClassPlace, name: str
) -> Iterator[Validator]:
    """Yield the functions that may change what is given for a field, or refuse it."""
    for at in sources.methods(cls):
        for mark in at.node.decorator_list:
            if not isinstance(mark, ast.Call) or "validator" not in (dotted(mark.func) or ""):
                continue
            whole = "model_validator" in (dotted(mark.func) or "")
            if whole or {name, "*"}.intersection(filter(None, map(source.text_of, mark.args))):
                early = source.text_of(_keyword(mark, "mode")) in {"before", "wrap", "plain"}
                yield Validator(at, early, whole)


def is_enum(sources: source.ModuleSources, cls: source.ClassPlace) -> bool:
    """Tell whether a class is an enumeration."""
    above = (base for one in sources.bases(cls) for base in one.node.bases)
    return any(source.last_name(base).endswith(("Enum", "Flag")) for base in above)


def members(cls: source.ClassPlace) -> dict[str, ast.expr]:
    """Return what the members of an enumeration are assigned, by name."""
    sets = (node for node in cls.node.body if isinstance(node, ast.Assign))
    pairs = ((target, node.value) for node in sets for target in node.targets)
    named = ((target.id, value) for target, value in pairs if isinstance(target, ast.Name))
    return {name: value for name, value in named if not name.startswith("_")}


@lru_cache(maxsize=512)
def _own_fields(cls: source.ClassPlace) -> tuple[ConfigField, ...]:
    fields = []
    body = cls.node.body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(node.annotation):
            continue
        call = node.value if isinstance(node.value, ast.Call) else None
        init = _keyword(call, "init")
        doc = source.text_of(after.value) if isinstance(after, ast.Expr) else None
        field = ConfigField(
            name=node.target.id,
            annotation=source.SourcePlace(cls.path, node.annotation),
            doc=" ".join((doc or "").split()),
            is_required=node.value is None,
            init=not (isinstance(init, ast.Constant) and init.value is False),
            bounds=tuple(_bounds(call)),
        )
        fields.append(field)
    return tuple(fields)


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
    given = () if call is None else call.keywords
    return next((one.value for one in given if one.arg == name), None)


def _marks(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    return [ast.unparse(mark) for mark in node.decorator_list]
