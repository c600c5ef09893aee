"""Objects of config classes, made as pydantic makes them: validators, types, ``__post_init__``."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from vllm_mods.serve import configs, meaning
from vllm_mods.serve.calls import Calls
from vllm_mods.serve.coercing import coerced
from vllm_mods.serve.meaning import UNKNOWN, CodeReference, KnownObject, RefusedError
from vllm_mods.serve.source import ModuleSources, SourcePlace

_LENGTH = "max_model_len"


class Objects(Calls):
    """Makes objects. ``Statements`` runs what their classes do then.

    ``whole`` is what the class that holds all others is made of, where it is made on every way.
    """

    def __init__(self, sources: ModuleSources) -> None:
        super().__init__(sources)
        self.whole: dict[str, Any] = {}

    def _special_VllmConfig(self, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401, N802  (its name)
        if self.trail is None:
            told = {
                name: self._copied(one) for name, one in kwargs.items() if id(one) not in self.lost
            }
            self.whole = told
        return self.give_up([*args, *kwargs.values()])

    def model(self, callee: CodeReference) -> Any:  # noqa: ANN401
        """Return the model's configuration: of it the length is known that is asked for."""
        cls = self.sources.find("vllm/config/__init__.py", "ModelConfig")
        length = self.attribute(callee.owner, _LENGTH)
        asked = {_LENGTH: length} if type(length) is int and length > 0 else {}
        return UNKNOWN if cls is None else KnownObject(cls, asked, partly=True)

    def make(self, cls: SourcePlace, given: dict[str, Any]) -> KnownObject:
        """Make an object of a config class as pydantic would. Raises ``RefusedError``."""
        early = True
        for one in configs.validators(self.sources, cls, ""):
            marks = ast.unparse(one.decorator_list[0])
            if "model_validator" in marks and "before" in marks:
                data = self.call(
                    CodeReference(
                        SourcePlace(_path(self.sources, cls, one), one), CodeReference(cls)
                    ),
                    [given],
                    {},
                )
                early &= isinstance(data, dict)
                given = data if isinstance(data, dict) else given
        made = KnownObject(cls)
        fields = configs.fields(self.sources, cls)
        for name, value in given.items():
            if name not in fields:
                if configs.takes_any_key(self.sources, cls, early=not early) is None:
                    raise RefusedError(f"{made!r} has no {name!r}", (name,))
                continue
            made.attrs[name] = self.validated(cls, fields[name], value)
        self._hooks(cls, made, {n: v for n, v in given.items() if n in fields})
        return made

    def validated(self, cls: SourcePlace, field: configs.ConfigField, value: Any) -> Any:  # noqa: ANN401
        """Return what a field holds after its validators. Raises ``RefusedError``."""
        late = []
        for one in configs.validators(self.sources, cls, field.name, late=True):
            mark = next(
                (ast.unparse(m) for m in one.decorator_list if "validator" in ast.unparse(m)), ""
            )
            if "model_validator" in mark:
                continue
            if "mode='before'" in mark:
                value = self._validator(cls, one, value)
            elif "mode='wrap'" in mark and value is None and configs.lets_none_through(one):
                return None
            elif "mode='plain'" in mark or (
                "mode='wrap'" in mark and not configs.lets_none_through(one)
            ):
                return UNKNOWN
            elif "mode='wrap'" not in mark:
                late.append(one)
        value = coerced(self, field, value)
        for one in late:
            value = self._validator(cls, one, value)
        return value

    def _validator(self, cls: SourcePlace, one: ast.FunctionDef, value: Any) -> Any:  # noqa: ANN401
        if value is UNKNOWN:
            return UNKNOWN
        parameters = [arg.arg for arg in one.args.args]
        if len(parameters) != 2:
            return UNKNOWN
        place = SourcePlace(_path(self.sources, cls, one), one)
        return self.call(CodeReference(place, CodeReference(cls)), [value], {})

    def _hooks(self, cls: SourcePlace, made: KnownObject, given: dict[str, Any]) -> None:
        post = self.sources.method(cls, "__post_init__")
        if post is not None and isinstance(post.node, ast.FunctionDef):
            wanted = [arg.arg for arg in post.node.args.args[1:]]
            init = {name: made.attrs.get(name, given.get(name, UNKNOWN)) for name in wanted}
            for name in wanted:
                if name not in given:
                    init[name] = self.attribute(made, name)
            self.call(CodeReference(post, made), [], init)
        for one in self.sources.bases(cls):
            for member in getattr(one.node, "body", ()):
                text = " ".join(ast.unparse(m) for m in getattr(member, "decorator_list", ()))
                if "model_validator" in text and "after" in text:
                    self.call(CodeReference(SourcePlace(one.path, member), made), [], {})

    def made_by_call(self, cls: SourcePlace, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Return what calling a class gives. Raises ``RefusedError``."""
        if not args and configs.is_dataclass(self.sources, cls):
            own = self.sources.method(cls, "__init__") or self.sources.method(cls, "__new__")
            if own is None:
                return self.make(cls, kwargs)
        if meaning.is_plain_enum(self.sources, cls) and len(args) == 1 and args[0] is not UNKNOWN:
            for member in meaning.enumerated(cls):
                if member == args[0] or (member.plain and member.value == args[0]):
                    return member
            return UNKNOWN
        return self.give_up([*args, *kwargs.values()])

    def give_up(self, given: Sequence[Any]) -> Any:  # noqa: ANN401
        """Lose what is handed to something that cannot be followed."""
        for one in given:
            self.lose(one)
        return UNKNOWN


def _path(sources: ModuleSources, cls: SourcePlace, member: ast.FunctionDef) -> str:
    """Return the file of a method that a class has or inherits."""
    return next(one.path for one in sources.bases(cls) if member in getattr(one.node, "body", ()))
