"""Expressions of the tree on values as far as they are known; nothing of vLLM is run.

What is not understood is not known, and what is handed to something unknown is not known any more.
"""

from __future__ import annotations

import ast
import contextlib
from typing import Any

from vllm_mods.serving import configs, meaning
from vllm_mods.serving.configs import Member
from vllm_mods.serving.meaning import (
    ABSENT,
    OF_TREE,
    UNKNOWN,
    CodeReference,
    Frame,
    KnownObject,
    RefusedError,
    Trail,
    items_of,
    known,
    truth,
)
from vllm_mods.serving.source import (
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
# What may have been added to since it was made.
_CHANGING = (list, dict, set, KnownObject)


class Expressions:
    """Remembers what is known, and evaluates expressions other than calls.

    ``Objects`` makes calls, ``Statements`` runs what is called.
    """

    def __init__(self, sources: ModuleSources) -> None:
        self.sources = sources
        self.trail: Trail | None = None
        self.lost: dict[int, object] = {}
        self._constants: dict[int, Any] = {}

    def call(self, callee: CodeReference, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function or class of the tree. Raises ``RefusedError`` where it raises."""
        raise NotImplementedError

    def write(self, into: dict[str, Any], key: str, value: object) -> None:
        """Set a name or an attribute, so that it can be taken back."""
        if self.trail is not None:
            self.trail.append((into, key, into.get(key, ABSENT)))
        into[key] = value

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Set what stands before an ``=``, or what a loop gives its values to."""
        if isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value, frame)
            if isinstance(owner, KnownObject):
                self.write(owner.attrs, target.attr, value)
        elif isinstance(target, ast.Subscript):
            owner = self.evaluate(target.value, frame)
            key = self.evaluate(target.slice, frame) if isinstance(owner, dict) else UNKNOWN
            if isinstance(owner, dict) and isinstance(key, str):
                self.write(owner, key, value)
            else:
                self.lose(owner)
        elif isinstance(target, ast.Name):
            self.write(frame.names, target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            fits = isinstance(value, (tuple, list)) and len(value) == len(target.elts)
            parts = value if fits else [UNKNOWN] * len(target.elts)
            for one, part in zip(target.elts, parts, strict=True):
                self.assign(one, part, frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, UNKNOWN, frame)

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
            members = configs.members(cls)
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

    def evaluate(self, node: ast.expr | None, frame: Frame) -> Any:
        """Return what an expression comes to. Raises ``RefusedError`` where the tree raises."""
        if node is None:
            return None
        reader = getattr(self, f"_as_{type(node).__name__.lower()}", None)
        value = UNKNOWN if reader is None else reader(node, frame)
        return UNKNOWN if id(value) in self.lost else value

    def holds(self, node: ast.expr, frame: Frame) -> bool | None:
        """Return whether a test is true, ``None`` if that is not known."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _not(self.holds(node.operand, frame))
        if isinstance(node, ast.BoolOp):
            decides = isinstance(node.op, ast.Or)
            answer: bool | None = not decides
            for one in node.values:
                found = self.holds(one, frame)
                if found is decides:
                    return decides
                answer = None if found is None else answer
            return answer
        return truth(self.evaluate(node, frame))

    # --- one kind each

    def _as_constant(self, node: ast.Constant, _frame: Frame) -> Any:
        return node.value

    def _as_joinedstr(self, node: ast.JoinedStr, frame: Frame) -> str:
        parts = (one.value if isinstance(one, ast.FormattedValue) else one for one in node.values)
        return "".join(str(self.evaluate(one, frame)) for one in parts)

    def _as_name(self, node: ast.Name, frame: Frame) -> Any:
        return frame.names[node.id] if node.id in frame.names else self.named(node, frame)

    def _as_attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        owner = self.evaluate(node.value, frame)
        if owner is not UNKNOWN:
            return self.attribute(owner, node.attr)
        head = (dotted(node) or "").partition(".")[0]
        return self.named(node, frame) if head and head not in frame.names else UNKNOWN

    def _as_slice(self, node: ast.Slice, frame: Frame) -> Any:
        bounds = [self.evaluate(one, frame) for one in (node.lower, node.upper, node.step)]
        return slice(*bounds) if known(bounds) else UNKNOWN

    def _as_subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        owner, key = self.evaluate(node.value, frame), self.evaluate(node.slice, frame)
        cls = as_class(owner.place) if isinstance(owner, CodeReference) else None
        if cls is not None and isinstance(key, str):
            return self._member(cls, key)
        if key is not UNKNOWN and isinstance(owner, (list, tuple, str, dict)):
            with contextlib.suppress(LookupError, TypeError):
                return owner[key]
        return UNKNOWN

    def _member(self, cls: ClassPlace, name: str) -> Member | KnownObject:
        if not meaning.is_plain_enum(self.sources, cls):
            return KnownObject(cls, partly=True)  # one of them, or it raises
        members = configs.members(cls)
        if name not in members:
            raise RefusedError(f"{name!r} is not one of {', '.join(members)}")
        return members[name]

    def _as_unaryop(self, node: ast.UnaryOp, frame: Frame) -> Any:
        if isinstance(node.op, ast.Not):
            return _told(_not(self.holds(node.operand, frame)))
        value = self.evaluate(node.operand, frame)
        number = isinstance(value, (int, float)) and isinstance(node.op, ast.USub)
        return -value if number else UNKNOWN

    def _as_boolop(self, node: ast.BoolOp, frame: Frame) -> Any:
        value: Any = UNKNOWN
        for one in node.values:
            value = self.evaluate(one, frame)
            answer = truth(value)
            if answer is None:
                return UNKNOWN
            if answer is isinstance(node.op, ast.Or):
                return value
        return value

    def _as_ifexp(self, node: ast.IfExp, frame: Frame) -> Any:
        answer = self.holds(node.test, frame)
        if answer is None:
            return UNKNOWN
        return self.evaluate(node.body if answer else node.orelse, frame)

    def _as_binop(self, node: ast.BinOp, frame: Frame) -> Any:
        one, other = self.evaluate(node.left, frame), self.evaluate(node.right, frame)
        return self.operated(node.op, one, other)

    def operated(self, op: ast.AST, one: Any, other: Any) -> Any:
        """Return what an operator makes of two values."""
        if isinstance(op, (ast.Mod, ast.FloorDiv)) and type(other) is int and other == 0:
            raise RefusedError("division by 0")
        if type(op) not in meaning.OPERATORS or not known([one, other]):
            return UNKNOWN
        if isinstance(one, OF_TREE) or isinstance(other, OF_TREE):
            return UNKNOWN
        try:
            return meaning.OPERATORS[type(op)](one, other)
        except (ArithmeticError, TypeError, ValueError):
            return UNKNOWN

    def _as_compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.evaluate(node.left, frame)
        answer: bool | None = True
        for op, right in zip(node.ops, node.comparators, strict=True):
            value = self.evaluate(right, frame)
            found = self._compared(op, left, value)
            if found is False:
                return False
            answer = None if found is None else answer
            left = value
        return _told(answer)

    def _compared(self, op: ast.cmpop, one: Any, other: Any) -> bool | None:
        match op:
            case ast.Is() | ast.Eq():
                return meaning.same(one, other)
            case ast.IsNot() | ast.NotEq():
                return _not(meaning.same(one, other))
            case ast.In() | ast.NotIn():
                answer = None if one is UNKNOWN else meaning.inside(one, other)
                return answer if isinstance(op, ast.In) else _not(answer)
            case _:
                pass
        found = self.operated(op, one, other)
        return None if found is UNKNOWN else bool(found)

    def _as_namedexpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        self.write(frame.names, node.target.id, value)
        return value

    def _several(self, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Any:
        found: list[Any] = []
        for one in node.elts:
            value = self.evaluate(one.value if isinstance(one, ast.Starred) else one, frame)
            if not isinstance(one, ast.Starred):
                found.append(value)
            elif isinstance(value, (list, tuple, set, range)):
                found += value
            else:
                return UNKNOWN
        return tuple(found) if isinstance(node, ast.Tuple) else found

    _as_list = _as_tuple = _several

    def _as_set(self, node: ast.Set, frame: Frame) -> Any:
        return _hashed(self._several(node, frame))

    def _as_dict(self, node: ast.Dict, frame: Frame) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.evaluate(value, frame)
            name = self.evaluate(key, frame)
            if key is None and isinstance(inner, dict):
                found.update(inner)
            elif key is not None and isinstance(name, (str, int, Member)):
                found[name] = inner
            else:
                return UNKNOWN
        return found

    def _comprehended(self, node: Any, frame: Frame) -> Any:
        found: list[Any] = []
        loop = node.generators[0]
        items = items_of(self.evaluate(loop.iter, frame)) if len(node.generators) == 1 else None
        if items is None:
            return UNKNOWN
        for item in items:
            inner = Frame(frame.path, dict(frame.names))
            self.assign(loop.target, item, inner)
            tests = [self.holds(test, inner) for test in loop.ifs]
            if None in tests:
                return UNKNOWN
            if all(tests):
                pair = isinstance(node, ast.DictComp)
                made = [node.key, node.value] if pair else [node.elt]
                values = [self.evaluate(one, inner) for one in made]
                found.append(tuple(values) if pair else values[0])
        return found

    def _as_dictcomp(self, node: ast.DictComp, frame: Frame) -> Any:
        found = self._comprehended(node, frame)
        keyed = found is not UNKNOWN and all(isinstance(key, str) for key, _ in found)
        return dict(found) if keyed else UNKNOWN

    _as_listcomp = _as_generatorexp = _comprehended

    def _as_setcomp(self, node: ast.SetComp, frame: Frame) -> Any:
        return _hashed(self._comprehended(node, frame))


def _not(answer: bool | None) -> bool | None:  # noqa: FBT001  (what is turned round)
    return None if answer is None else not answer


def _told(answer: bool | None) -> Any:  # noqa: FBT001  (what is told)
    return UNKNOWN if answer is None else answer


def _hashed(found: Any) -> Any:
    try:
        return UNKNOWN if found is UNKNOWN or not known(found) else set(found)
    except TypeError:
        return UNKNOWN
