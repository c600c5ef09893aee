"""Names and attributes of the tree, as far as what they stand for is known."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from vllm_mods.serve import configs, meaning
from vllm_mods.serve.meaning import UNKNOWN, CodeReference, KnownObject, Member
from vllm_mods.serve.source import (
    AnyPlace,
    ClassPlace,
    FunctionPlace,
    ModuleSources,
    SourcePlace,
    as_class,
    dotted,
    last_name,
)

_ENVIRONMENT = "vllm/envs.py"
_ABSENT = object()
# What may have been added to since it was made.
_CHANGING = (list, dict, set, KnownObject)
Trail = list[tuple[dict[str, Any], str, Any]]


class Frame(NamedTuple):
    """One call: its names, and the file that it is in."""

    path: str
    names: dict[str, Any]


class Lookups:
    """Remembers what is known. ``Expressions`` evaluates, ``Statements`` runs what is found."""

    def __init__(self, sources: ModuleSources) -> None:
        self.sources = sources
        self.trail: Trail | None = None
        self.lost: dict[int, object] = {}
        self._constants: dict[int, Any] = {}

    def evaluate(self, node: ast.expr | None, frame: Frame) -> Any:
        """Return what an expression comes to. Raises ``RefusedError`` where the tree raises."""
        raise NotImplementedError

    def call(self, callee: CodeReference, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function or class of the tree. Raises ``RefusedError`` where it raises."""
        raise NotImplementedError

    def write(self, into: dict[str, Any], key: str, value: object) -> None:
        """Set a name or an attribute, so that it can be taken back."""
        if self.trail is not None:
            self.trail.append((into, key, into.get(key, _ABSENT)))
        into[key] = value

    def lose(self, *values: object) -> Any:
        """Take what something unknown may have changed as not known any more, as its result is."""
        for value in values:
            if id(value) in self.lost or not isinstance(value, _CHANGING):
                continue
            if isinstance(value, KnownObject) and value.partly:
                continue  # what is known of it is what was asked for
            self.lost[id(value)] = value
            held = value.attrs if isinstance(value, KnownObject) else value
            self.lose(*(held.values() if isinstance(held, dict) else held))
        return UNKNOWN

    def named(self, node: ast.expr, frame: Frame) -> Any:
        """Return what a name of the module means."""
        place = self.sources.find(frame.path, dotted(node))
        return UNKNOWN if place is None else self.at(place)

    def at(self, place: AnyPlace) -> Any:
        """Return what is defined somewhere in the tree."""
        if place.path == _ENVIRONMENT:
            return UNKNOWN
        if isinstance(place.node, (ast.ClassDef, ast.FunctionDef)):
            return CodeReference(SourcePlace(place.path, place.node))
        value = getattr(place.node, "value", None)
        if not isinstance(value, ast.expr) or isinstance(place.node, ast.AugAssign):
            return UNKNOWN
        key = id(place.node)
        if key not in self._constants:
            self._constants[key] = UNKNOWN  # until it is known: a name may mean itself
            self._constants[key] = self.evaluate(value, Frame(place.path, {}))
        found = self._constants[key]
        return UNKNOWN if isinstance(found, _CHANGING) else found

    def attribute(self, owner: Any, name: str) -> Any:
        """Return an attribute of what is known: a field, a member, a method."""
        if isinstance(owner, Member) and (name == "name" or (name == "value" and owner.plain)):
            return getattr(owner, name)
        if isinstance(owner, KnownObject):
            if name in owner.attrs:
                return owner.attrs[name]
            if owner.partly and name in configs.fields(self.sources, owner.cls):
                return UNKNOWN
            return self.inherited(owner.cls, name, owner)
        cls = as_class(owner.place) if isinstance(owner, CodeReference) else None
        return UNKNOWN if cls is None else self.inherited(cls, name, owner)

    def inherited(self, cls: ClassPlace, name: str, owner: KnownObject | CodeReference) -> Any:
        """Return what a class says of a name: a member, the default of a field, a method."""
        if meaning.is_plain_enum(self.sources, cls):
            members = {one.name: one for one in meaning.enumerated(cls)}
            if name == "__members__":
                return members
            if name in members:
                return members[name]
        for one in self.sources.bases(cls):
            for member in one.node.body:
                if isinstance(member, ast.FunctionDef) and member.name == name:
                    return self.method(SourcePlace(one.path, member), owner)
                if isinstance(member, ast.AnnAssign) and dotted(member.target) == name:
                    found = self.default(member.value, Frame(one.path, {}))
                    if isinstance(owner, KnownObject):
                        owner.attrs[name] = found  # the same object each time
                    elif isinstance(found, _CHANGING):
                        return UNKNOWN
                    return found
        return UNKNOWN

    def method(self, place: FunctionPlace, owner: KnownObject | CodeReference) -> Any:
        """Return a method of an object or class, or what a property comes to."""
        marks = {last_name(mark) for mark in place.node.decorator_list}
        if marks & {"property", "cached_property"}:
            called = isinstance(owner, KnownObject)
            return self.call(CodeReference(place, owner), [], {}) if called else UNKNOWN
        if "classmethod" in marks and isinstance(owner, KnownObject):
            owner = CodeReference(owner.cls)
        return CodeReference(place, None if "staticmethod" in marks else owner)

    def default(self, value: ast.expr | None, frame: Frame) -> Any:
        """Return the default of a field of a dataclass, a new one each time."""
        if isinstance(value, ast.Call) and dotted(value.func) in {"Field", "field"}:
            given = {one.arg: one.value for one in value.keywords}
            factory = given.get("default_factory")
            if isinstance(factory, ast.Lambda):
                value = factory.body
            elif factory is not None:
                value = ast.Call(func=factory, args=[], keywords=[])
            else:
                value = given.get("default", value.args[0] if value.args else None)
        return UNKNOWN if value is None else self.evaluate(value, frame)


def undo(trail: Trail) -> None:
    """Take back what was written."""
    for into, key, before in reversed(trail):
        if before is _ABSENT:
            into.pop(key, None)
        else:
            into[key] = before
