"""Expressions of a tree on values as far as they are known; nothing of vLLM is run.

What is not understood is ``UNKNOWN``, and so is all that rests on it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from vllm_mods.serving import hints
from vllm_mods.serving.source import ClassPlace, ModuleSources, SourcePlace, dotted


class _UnknownValue:
    def __repr__(self) -> str:
        return "…"


UNKNOWN: Final = _UnknownValue()
_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.Eq: operator.eq,
    ast.IsNot: operator.ne,
    ast.NotEq: operator.ne,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
# What only reads a text, a list or an object.
_READS = {"count", "endswith", "get", "lower", "startswith", "strip", "upper"}
_BUILTINS: Mapping[str, Callable[..., Any]] = {
    one.__name__: one for one in (abs, bool, len, max, min, sum, sorted)
}
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "dict": dict, "list": list}


class RefusedError(Exception):
    """The tree raises here. ``names`` are those that it looked at."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


@dataclass(eq=False, slots=True)
class ConfigObject:
    """A config object of the tree and its known attributes; ``fixed`` ones stay known wherever the object is passed."""

    cls: ClassPlace
    attributes: dict[str, Any]
    fixed: bool = False

    def lose(self) -> None:
        """Forget the attributes: the object was passed to code that is not followed."""
        if not self.fixed:
            self.attributes.clear()

    def __repr__(self) -> str:
        return self.cls.node.name


class Frame(NamedTuple):
    """A call that is followed: its file, its local names, and the object that it is called on."""

    path: str
    names: dict[str, Any]
    owner: ConfigObject | None = None


def is_known(value: object) -> bool:
    """Return True if a value and all that it holds is plain and known."""
    if isinstance(value, (list, tuple, set)):
        return all(map(is_known, value))
    if isinstance(value, dict):
        return all(map(is_known, value.values()))
    return value is None or isinstance(value, (str, int, float))


def _truth(value: Any) -> bool | None:
    if isinstance(value, ConfigObject):
        return True
    return bool(value) if is_known(value) or isinstance(value, list) else None


class Evaluator:
    """Evaluates expressions; subclasses follow calls in ``call``."""

    def __init__(self, sources: ModuleSources) -> None:
        self.sources = sources

    def call(self, node: ast.Call, frame: Frame) -> Any:
        """Return the value of a call of the tree's own code."""
        raise NotImplementedError

    def value(self, node: ast.expr | None, frame: Frame) -> Any:  # noqa: C901, PLR0911, PLR0912  (a kind each)
        """Return the value of an expression. Raises ``RefusedError`` where the tree raises."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return frame.names[name] if name in frame.names else self._constant(node, frame)
            case ast.Attribute(value=ast.Name() as owner, attr=name):
                held = self.value(owner, frame)
                if isinstance(held, ConfigObject):
                    return held.attributes.get(name, UNKNOWN)
                return UNKNOWN
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                return [self.value(one, frame) for one in elements]
            case ast.JoinedStr(values=parts):
                inner = (one.value if isinstance(one, ast.FormattedValue) else one for one in parts)
                return "".join(str(self.value(one, frame)) for one in inner)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.value(operand, frame)
                return -value if isinstance(value, (int, float)) else UNKNOWN
            case ast.BoolOp(op=op, values=operands):
                return self._choose(isinstance(op, ast.Or), operands, frame)
            case ast.UnaryOp(op=ast.Not()):
                answer = self.holds(node, frame)
                return UNKNOWN if answer is None else answer
            case ast.BinOp(left=left, op=op, right=right):
                return self._apply(op, self.value(left, frame), self.value(right, frame))
            case ast.Compare():
                return self._compare(node, frame)
            case ast.IfExp(test=test, body=body, orelse=other):
                answer = self.holds(test, frame)
                return UNKNOWN if answer is None else self.value(body if answer else other, frame)
            case ast.NamedExpr(target=target, value=inner):
                frame.names[target.id] = self.value(inner, frame)
                return frame.names[target.id]
            case ast.Call():
                return self._call_builtin(node, frame)
            case _:
                return UNKNOWN

    def holds(self, test: ast.expr, frame: Frame) -> bool | None:
        """Return whether a test is true, None if unknown."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            answer = self.holds(test.operand, frame)
            return None if answer is None else not answer
        if isinstance(test, ast.BoolOp):
            decides = isinstance(test.op, ast.Or)
            answers = []
            for operand in test.values:
                answers.append(self.holds(operand, frame))
                if answers[-1] is decides:
                    return decides
            return None if None in answers else not decides
        return _truth(self.value(test, frame))

    def _choose(self, decides: bool, operands: Sequence[ast.expr], frame: Frame) -> Any:  # noqa: FBT001
        """Return the value of ``or`` (True decides it) or of ``and`` (False decides it)."""
        value: Any = UNKNOWN
        for operand in operands:
            value = self.value(operand, frame)
            answer = _truth(value)
            if answer is None or answer is decides:
                return UNKNOWN if answer is None else value
        return value

    def _constant(self, node: ast.Name, frame: Frame) -> Any:
        """Return what a name of the module is assigned, where that is written out."""
        value = self.sources.value(frame.path, node.id)
        try:
            return UNKNOWN if value is None else ast.literal_eval(value)
        except ValueError:
            return UNKNOWN

    def _compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.value(node.left, frame)
        answer: Any = True
        for op, side in zip(node.ops, node.comparators, strict=True):
            right = self.value(side, frame)
            result = self._apply(op, left, right)
            if result is False:
                return False  # what stands behind is not evaluated
            answer = answer if result is True else UNKNOWN
            left = right
        return answer

    def _apply(self, op: ast.AST, left: Any, right: Any) -> Any:
        is_in = isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, list) and is_known(left)
        if is_in and any(is_known(one) and one == left for one in right):
            return isinstance(op, ast.In)
        if type(op) not in _OPERATORS or not (is_known(left) and is_known(right)):
            return UNKNOWN
        if isinstance(op, ast.Mult) and not all(
            isinstance(one, (int, float)) for one in (left, right)
        ):
            return UNKNOWN  # `"x" * n` may be of any size
        if isinstance(op, (ast.Mod, ast.FloorDiv)) and right == 0:
            raise RefusedError("division by 0")
        try:
            return _OPERATORS[type(op)](left, right)
        except (ArithmeticError, TypeError, ValueError):
            return UNKNOWN

    def _call_builtin(self, node: ast.Call, frame: Frame) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _BUILTINS:
                given = [self.value(one, frame) for one in args]
                return _compute(_BUILTINS[name], given)
            case ast.Call(func=ast.Name(id="isinstance"), args=[argument, ast.Name(id=kind)]):
                value = self.value(argument, frame)
                fits = kind in _TYPES and is_known(value)
                return isinstance(value, _TYPES[kind]) if fits else UNKNOWN
            case ast.Call(func=ast.Name(id="get_args"), args=[argument]):
                kinds = hints.hints(self.sources, SourcePlace(frame.path, argument))
                plain = bool(kinds) and all(hint.kind == "literal" for hint in kinds)
                return list(hints.literals(kinds)) if plain else UNKNOWN
            case ast.Call(func=ast.Attribute(value=on, attr=name), args=args, keywords=[]) if (
                name in _READS and is_known(value := self.value(on, frame)) and hasattr(value, name)
            ):
                given = [self.value(one, frame) for one in args]
                return _compute(getattr(value, name), given)
            case _:
                return self.call(node, frame)


def _compute(function: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Return the result of one of Python's own functions."""
    if not all(map(is_known, given)):
        return UNKNOWN
    try:
        return function(*given)
    except (TypeError, ValueError, LookupError):
        return UNKNOWN


def names_in(node: ast.AST) -> tuple[str, ...]:
    """Return the names and attributes that an expression looks at."""
    return tuple(
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in ast.walk(node)
        if isinstance(one, (ast.Attribute, ast.Name))
    )


def is_quiet(node: ast.Call) -> bool:
    """Return True for a call that only logs or warns."""
    return (dotted(node.func) or "").partition(".")[0] in {"logger", "warnings", "logging"}
