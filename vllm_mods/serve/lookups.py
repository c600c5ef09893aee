"""Names and attributes of the tree, as far as what they stand for is known."""

from __future__ import annotations

import ast
from typing import Any

from vllm_mods.serve import configs, meaning
from vllm_mods.serve.meaning import UNKNOWN, CodeReference, KnownObject, Member
from vllm_mods.serve.source import ModuleSources, SourcePlace, dotted

_ENVIRONMENT = "vllm/envs.py"
_ABSENT = object()
Trail = list[tuple[dict[str, Any], str, Any]]


class Frame:
    """One call: its names, and the file that it is in."""

    def __init__(self, path: str, names: dict[str, Any]) -> None:
        self.path = path
        self.names = names


class Lookups:
    """Remembers what is known. ``Expressions`` evaluates, ``Statements`` runs what is found."""

    def __init__(self, sources: ModuleSources) -> None:
        self.sources = sources
        self.trail: Trail | None = None
        self.lost: dict[int, object] = {}
        self._constants: dict[int, Any] = {}

    def evaluate(self, node: ast.expr | None, frame: Frame) -> Any:  # noqa: ANN401  (whatever Python holds)
        """Return what an expression comes to. Raises ``RefusedError`` where the tree raises."""
        raise NotImplementedError

    def call(self, callee: CodeReference, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call a function or class of the tree. Raises ``RefusedError`` where it raises."""
        raise NotImplementedError

    def write(self, into: dict[str, Any], key: str, value: object) -> None:
        """Set a name or an attribute, so that it can be taken back."""
        if self.trail is not None:
            self.trail.append((into, key, into.get(key, _ABSENT)))
        into[key] = value

    def lose(self, value: object) -> None:
        """Take an object that something unknown may have changed as not known any more."""
        if id(value) in self.lost or not isinstance(value, (KnownObject, list, dict, set)):
            return
        if isinstance(value, KnownObject) and value.partly:
            return  # what is known of it is what was asked for
        self.lost[id(value)] = value
        held = value.attrs if isinstance(value, KnownObject) else value
        for one in held.values() if isinstance(held, dict) else held:
            self.lose(one)

    def named(self, node: ast.expr, frame: Frame) -> Any:  # noqa: ANN401
        """Return what a name of the module means."""
        name = dotted(node)
        place = self.sources.find(frame.path, name) if name else None
        return UNKNOWN if place is None else self.at(place)

    def at(self, place: SourcePlace) -> Any:  # noqa: ANN401
        """Return what is defined somewhere in the tree."""
        if place.path == _ENVIRONMENT:
            return UNKNOWN
        if isinstance(place.node, (ast.ClassDef, ast.FunctionDef)):
            return CodeReference(place)
        value = getattr(place.node, "value", None)
        if not isinstance(value, ast.expr) or isinstance(place.node, ast.AugAssign):
            return UNKNOWN
        key = id(place.node)
        if key not in self._constants:
            self._constants[key] = UNKNOWN  # until it is known: a name may mean itself
            self._constants[key] = self.evaluate(value, Frame(place.path, {}))
        found = self._constants[key]
        # what is no constant by its kind may have been added to
        return UNKNOWN if isinstance(found, (list, dict, set, KnownObject)) else found

    def attribute(self, owner: Any, name: str) -> Any:  # noqa: ANN401
        """Return an attribute of what is known: a field, a member, a method."""
        if isinstance(owner, Member):
            return {"name": owner.name, "value": owner.value if owner.plain else UNKNOWN}.get(
                name, UNKNOWN
            )
        if isinstance(owner, KnownObject):
            if name in owner.attrs:
                return owner.attrs[name]
            if owner.partly and name in configs.fields(self.sources, owner.cls):
                return UNKNOWN
            return self.inherited(owner.cls, name, owner)
        if isinstance(owner, CodeReference) and isinstance(owner.place.node, ast.ClassDef):
            return self.inherited(owner.place, name, owner)
        return UNKNOWN

    def inherited(self, cls: SourcePlace, name: str, owner: KnownObject | CodeReference) -> Any:  # noqa: ANN401
        """Return what a class says of a name: a member, the default of a field, a method."""
        if meaning.is_plain_enum(self.sources, cls):
            members = {one.name: one for one in meaning.enumerated(cls)}
            if name == "__members__":
                return members
            if name in members:
                return members[name]
        for one in self.sources.bases(cls):
            for member in getattr(one.node, "body", ()):
                if isinstance(member, ast.FunctionDef) and member.name == name:
                    return self.method(SourcePlace(one.path, member), owner)
                if (
                    isinstance(member, ast.AnnAssign)
                    and isinstance(member.target, ast.Name)
                    and member.target.id == name
                ):
                    found = self.default(SourcePlace(one.path, member))
                    if isinstance(owner, KnownObject):
                        owner.attrs[name] = found  # the same object each time
                    elif isinstance(found, (list, dict, set, KnownObject)):
                        return UNKNOWN  # it may have been added to
                    return found
        return UNKNOWN

    def method(self, place: SourcePlace, owner: KnownObject | CodeReference) -> Any:  # noqa: ANN401
        """Return a method of an object or class, or what a property comes to."""
        marks = _marks(place.node)
        if marks & {"property", "cached_property"}:
            return (
                self.call(CodeReference(place, owner), [], {})
                if isinstance(owner, KnownObject)
                else UNKNOWN
            )
        if "classmethod" in marks and isinstance(owner, KnownObject):
            owner = CodeReference(owner.cls)
        return CodeReference(place, None if "staticmethod" in marks else owner)

    def default(self, at: SourcePlace) -> Any:  # noqa: ANN401
        """Return the default of a field of a dataclass, a new one each time."""
        assert isinstance(at.node, ast.AnnAssign)  # noqa: S101  (the caller looked)
        value, frame = at.node.value, Frame(at.path, {})
        if not isinstance(value, ast.Call) or (dotted(value.func) or "") not in {"Field", "field"}:
            return UNKNOWN if value is None else self.evaluate(value, frame)
        given = {one.arg: one.value for one in value.keywords}
        if "default_factory" in given:
            factory = given["default_factory"]
            if isinstance(factory, ast.Lambda):
                return self.evaluate(factory.body, frame)
            return self.evaluate(ast.Call(func=factory, args=[], keywords=[]), frame)
        first = given.get("default", value.args[0] if value.args else None)
        return UNKNOWN if first is None else self.evaluate(first, frame)


def undo(trail: Trail) -> None:
    """Take back what was written."""
    for into, key, before in reversed(trail):
        if before is _ABSENT:
            into.pop(key, None)
        else:
            into[key] = before


def _marks(node: ast.AST) -> set[str]:
    return {
        (dotted(mark.func if isinstance(mark, ast.Call) else mark) or "").rpartition(".")[2]
        for mark in getattr(node, "decorator_list", ())
    }
