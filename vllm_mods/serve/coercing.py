"""What a field of a config class makes of a value, as pydantic does: a member, an object, or a refusal."""

from __future__ import annotations

from typing import Any, Protocol

from vllm_mods.serve import configs, hints, meaning, values
from vllm_mods.serve.configs import ConfigField
from vllm_mods.serve.meaning import UNKNOWN, KnownObject, Member, RefusedError
from vllm_mods.serve.source import ModuleSources, SourcePlace


class _Maker(Protocol):
    sources: ModuleSources

    def make(self, cls: SourcePlace, given: dict[str, Any]) -> KnownObject:
        """Make an object of a config class."""


def coerced(maker: _Maker, field: ConfigField, value: Any) -> Any:  # noqa: ANN401
    """Return what the field holds, ``UNKNOWN`` if that cannot be told. Raises ``RefusedError``."""
    sources = maker.sources
    if isinstance(value, (KnownObject, Member)) or not meaning.known(value):
        return value
    if not _plain(value):
        return UNKNOWN
    if values.is_unchecked(field):
        return value
    found = hints.hints(sources, field.annotation)
    config = next(
        (h.place for h in found if h.place and configs.is_dataclass(sources, h.place)), None
    )
    if isinstance(value, dict) and config is not None:
        return maker.make(config, value)
    for one in (*values.type_problems(sources, found, value, field.name), *_bounds(field, value)):
        raise RefusedError(one.message, (field.name,))
    return _converted(sources, found, value)


def _bounds(field: ConfigField, value: Any) -> tuple[values.ValueProblem, ...]:  # noqa: ANN401
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return tuple(values.bound_problems(field, value, field.name))
    return ()


def _plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_plain(one) for one in value)
    if isinstance(value, dict):
        return all(_plain(one) for one in value.values())
    return value is None or isinstance(value, (bool, int, float, str))


def _converted(  # noqa: C901, PLR0911 - one kind of type per branch
    sources: ModuleSources,
    found: tuple[hints.Hint, ...],
    value: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    for hint in found:
        if hint.kind == "literal" and value in hint.values:
            return value
        if hint.kind == "class" and hint.place and meaning.is_plain_enum(sources, hint.place):
            for member in meaning.enumerated(hint.place):
                if member.plain and member.value == value:
                    return member
    builtin = [hint for hint in found if hint.kind == "builtin"]
    for hint in builtin:
        if hint.name == type(value).__name__ or (hint.name == "None" and value is None):
            return value if _holds_plainly(sources, hint, value) else UNKNOWN
    names = {hint.name for hint in builtin if hint.name != "None"}
    if names == {"float"} and type(value) is int:
        return float(value)
    if names == {"int"} and isinstance(value, str) and value.isdigit():
        return int(value)
    if names & {"tuple", "set"} and isinstance(value, list) and len(names) == 1:
        return tuple(value) if "tuple" in names else UNKNOWN
    return UNKNOWN


def _holds_plainly(sources: ModuleSources, hint: hints.Hint, value: Any) -> bool:  # noqa: ANN401
    """Tell whether what a list holds stays as it is."""
    if not isinstance(value, list) or not value:
        return True
    inner = hints.hints(sources, hint.args[0]) if len(hint.args) == 1 else ()
    named = {one.name for one in inner if one.kind == "builtin"}
    literal = [text for one in inner for text in one.values]
    return all(one in literal or type(one).__name__ in named for one in value)
