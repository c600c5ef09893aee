"""Objects of config classes, made as pydantic makes them: validators, types, ``__post_init__``."""

from __future__ import annotations

import ast
from typing import Any

from vllm_mods.serving import configs, hints, meaning, values
from vllm_mods.serving.calls import Calls
from vllm_mods.serving.configs import ConfigField, Member
from vllm_mods.serving.meaning import UNKNOWN, CodeReference, KnownObject, RefusedError
from vllm_mods.serving.source import ClassPlace, FunctionPlace, ModuleSources

_LENGTH = "max_model_len"


class Objects(Calls):
    """Makes objects. ``Statements`` runs what their classes do then.

    ``whole`` is what the class that holds all others is made of, where it is made on every way.
    """

    def __init__(self, sources: ModuleSources) -> None:
        super().__init__(sources)
        self.whole: dict[str, Any] = {}

    def _special_VllmConfig(self, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: N802  (its name)
        if self.trail is None:
            self.whole = {
                name: self._copied(one) for name, one in kwargs.items() if id(one) not in self.lost
            }
        return self.lose(*args, *kwargs.values())

    def model(self, callee: CodeReference) -> Any:
        """Return the model's configuration: of it the length is known that is asked for."""
        cls = self.sources.find_class("vllm/config/__init__.py", "ModelConfig")
        length = self.attribute(callee.owner, _LENGTH)
        asked = {_LENGTH: length} if type(length) is int and length > 0 else {}
        return UNKNOWN if cls is None else KnownObject(cls, asked, partly=True)

    def make(self, cls: ClassPlace, given: dict[str, Any]) -> KnownObject:
        """Make an object of a config class as pydantic would. Raises ``RefusedError``."""
        early = True
        for one in configs.validators(self.sources, cls, ""):
            if one.whole and one.mode == "before":
                data = self.call(CodeReference(one.at, CodeReference(cls)), [given], {})
                early &= isinstance(data, dict)
                given = data if isinstance(data, dict) else given
        made = KnownObject(cls)
        fields = configs.fields(self.sources, cls)
        for name, value in given.items():
            if name in fields:
                made.attrs[name] = self.validated(cls, fields[name], value)
            elif configs.takes_any_key(self.sources, cls, early=not early) is None:
                raise RefusedError(f"{made!r} has no {name!r}", (name,))
        self._hooks(cls, made, {n: v for n, v in given.items() if n in fields})
        return made

    def validated(self, cls: ClassPlace, field: ConfigField, value: Any) -> Any:
        """Return what a field holds after its validators. Raises ``RefusedError``."""
        late = []
        for one in configs.validators(self.sources, cls, field.name):
            if one.whole:
                continue
            if one.mode == "before":
                value = self._validator(cls, one.at, value)
            elif not one.early:
                late.append(one.at)
            elif one.mode == "plain" or not one.lets_none_through:
                return UNKNOWN
            elif value is None:
                return None
        value = self.coerced(field, value)
        for at in late:
            value = self._validator(cls, at, value)
        return value

    def _validator(self, cls: ClassPlace, at: FunctionPlace, value: Any) -> Any:
        if value is UNKNOWN or len(at.node.args.args) != 2:
            return UNKNOWN
        return self.call(CodeReference(at, CodeReference(cls)), [value], {})

    def coerced(self, field: ConfigField, value: Any) -> Any:
        """Return what pydantic makes of a value: a member, an object. Raises ``RefusedError``."""
        if isinstance(value, (KnownObject, Member)) or not meaning.known(value):
            return value
        if not _is_json(value):
            return UNKNOWN
        if values.is_unchecked(field):
            return value
        found = hints.hints(self.sources, field.annotation)
        config = hints.config_class(self.sources, found)
        if isinstance(value, dict) and config is not None:
            return self.make(config, value)
        wrong = [*values.type_problems(self.sources, found, value, field.name)]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            wrong += values.bound_problems(field, value, field.name)
        if wrong:
            raise RefusedError(wrong[0].message, (field.name,))
        return _converted(self.sources, found, value)

    def _hooks(self, cls: ClassPlace, made: KnownObject, given: dict[str, Any]) -> None:
        post = self.sources.method(cls, "__post_init__")
        if post is not None:
            init = {
                name: made.attrs.get(name, given[name])
                if name in given
                else self.attribute(made, name)
                for name in (arg.arg for arg in post.node.args.args[1:])
            }
            self.call(CodeReference(post, made), [], init)
        for one in self.sources.methods(cls):
            text = " ".join(ast.unparse(mark) for mark in one.node.decorator_list)
            if "model_validator" in text and "after" in text:
                self.call(CodeReference(one, made), [], {})

    def made_by_call(self, cls: ClassPlace, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return what calling a class gives. Raises ``RefusedError``."""
        if not args and configs.is_dataclass(self.sources, cls):
            own = self.sources.method(cls, "__init__") or self.sources.method(cls, "__new__")
            if own is None:
                return self.make(cls, kwargs)
        if meaning.is_plain_enum(self.sources, cls) and len(args) == 1 and args[0] is not UNKNOWN:
            for member in configs.members(cls).values():
                if member == args[0] or (member.plain and member.value == args[0]):
                    return member
            return UNKNOWN
        return self.lose(*args, *kwargs.values())


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return all(_is_json(one) for one in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _converted(  # noqa: C901, PLR0911 - one kind of type per branch
    sources: ModuleSources, found: tuple[hints.Hint, ...], value: Any
) -> Any:
    for hint in found:
        if hint.kind == "literal" and value in hint.values:
            return value
        if hint.place and meaning.is_plain_enum(sources, hint.place):
            for member in configs.members(hint.place).values():
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
    if names == {"tuple"} and isinstance(value, list):
        return tuple(value)
    return UNKNOWN


def _holds_plainly(sources: ModuleSources, hint: hints.Hint, value: Any) -> bool:
    """Tell whether what a list holds stays as it is."""
    if not isinstance(value, list) or not value:
        return True
    inner = hints.hints(sources, hint.args[0]) if len(hint.args) == 1 else ()
    named = {one.name for one in inner if one.kind == "builtin"}
    return all(one in hints.literals(inner) or type(one).__name__ in named for one in value)
