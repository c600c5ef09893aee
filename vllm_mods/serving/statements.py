"""Functions of the tree, followed as far as values are known: which raise, whatever else is so.

A branch whose test is not known is gone through and taken back: what it sets is not known after it,
and what it raises is no refusal. Only what is raised on every way is one.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from vllm_mods.serving.meaning import (
    UNKNOWN,
    CodeReference,
    Frame,
    RefusedError,
    items_of,
    undo,
)
from vllm_mods.serving.objects import Objects
from vllm_mods.serving.source import ModuleSources, SourcePlace, last_name

_STEPS = 40_000
_MODEL = "create_model_config"
# Decorators that leave a function what it is.
_TRANSPARENT = {"staticmethod", "classmethod", "property", "cached_property", "cache", "lru_cache"}
_TRANSPARENT |= {"field_validator", "model_validator", "override"}


class _Way(enum.Enum):
    """How a block ends."""

    ON = "goes on"
    RETURN = "returns"
    RAISE = "raises"
    BREAK = "leaves its loop"
    NEXT = "goes on with its loop"
    MAYBE = "may have returned before"
    LOOSE = "may have left its loop or its turn before"


class _End(NamedTuple):
    way: _Way
    value: Any = None
    error: RefusedError | None = None


_ON = _End(_Way.ON)
_LEAVING = {ast.Break: _End(_Way.BREAK), ast.Continue: _End(_Way.NEXT)}
# How a way ends, and what it sets.
_Tried = tuple[_End, list[tuple[dict[str, Any], str, Any]]]


class Statements(Objects):
    """Runs functions and makes objects of config classes, as far as their values are known."""

    def __init__(self, sources: ModuleSources) -> None:
        super().__init__(sources)
        self._running: list[ast.FunctionDef] = []
        self._steps = 0

    def call(self, callee: CodeReference, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function or class of the tree. Raises ``RefusedError`` where it raises."""
        path, node = callee.place
        if isinstance(node, ast.ClassDef):
            return self.made_by_call(SourcePlace(path, node), args, kwargs)
        names = self._parameters(callee, node, args, kwargs) if _is_plain(node) else None
        if names is None or self._running.count(node) > 1 or self._steps > _STEPS:
            return self.lose(callee.owner, *args, *kwargs.values())
        self._running.append(node)
        try:
            value = self.follow(node.body, path, names)
        finally:
            self._running.pop()
        return self.model(callee) if node.name == _MODEL else value

    def follow(self, body: Sequence[ast.stmt], path: str, names: dict[str, Any]) -> Any:
        """Run statements of a file on names, and return what they return.

        Raises ``RefusedError`` where they raise on every way.
        """
        end = self._block(body, Frame(path, names))
        if end.error is not None:
            raise end.error
        return end.value if end.way is _Way.RETURN else None if end.way is _Way.ON else UNKNOWN

    def _parameters(
        self, callee: CodeReference, node: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]
    ) -> dict[str, Any] | None:
        spec = node.args
        several = [*spec.posonlyargs, *spec.args]
        given = list(args) if callee.owner is None else [callee.owner, *args]
        if spec.vararg or spec.kwarg or len(given) > len(several):
            return None
        names = dict(zip((arg.arg for arg in several), given, strict=False)) | kwargs
        early = zip(reversed(several), reversed(spec.defaults), strict=False)
        late = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        for arg, default in (*early, *late):
            if arg.arg not in names and default is not None:
                names[arg.arg] = self.evaluate(default, Frame(callee.place.path, {}))
        return {arg.arg: names.get(arg.arg, UNKNOWN) for arg in (*several, *spec.kwonlyargs)}

    # --- statements

    def _block(self, body: Sequence[ast.stmt], frame: Frame) -> _End:
        for i, node in enumerate(body):
            self._steps += 1
            end = self._statement(node, frame)
            if end.way in {_Way.MAYBE, _Way.LOOSE}:
                rest = self._forget(body[i + 1 :], frame)
                return rest if rest.way is _Way.MAYBE else end
            if end.way is not _Way.ON:
                return end
        return _ON

    def _statement(self, node: ast.stmt, frame: Frame) -> _End:
        try:
            handler = getattr(self, f"_do_{type(node).__name__.lower()}", None)
            return _LEAVING.get(type(node), _ON) if handler is None else handler(node, frame)
        except RefusedError as error:
            return _End(_Way.RAISE, error=error)

    def _do_expr(self, node: ast.Expr, frame: Frame) -> _End:
        self.evaluate(node.value, frame)
        return _ON

    def _do_return(self, node: ast.Return, frame: Frame) -> _End:
        return _End(_Way.RETURN, self.evaluate(node.value, frame))

    def _do_raise(self, node: ast.Raise, frame: Frame) -> _End:
        call = node.exc
        first = call.args[0] if isinstance(call, ast.Call) and call.args else None
        text = self.evaluate(first, frame)
        shown = text if isinstance(text, str) and text else ast.unparse(call) if call else "raises"
        return _End(_Way.RAISE, error=RefusedError(shown))

    def _do_assert(self, node: ast.Assert, frame: Frame) -> _End:
        if self.holds(node.test, frame) is not False:
            return _ON
        text = self.evaluate(node.msg, frame)
        if isinstance(text, tuple):
            text = " ".join(str(one) for one in text)
        shown = text if isinstance(text, str) else f"{ast.unparse(node.test)} does not hold"
        return _End(_Way.RAISE, error=RefusedError(shown, _names(node.test)))

    def _do_import(self, node: ast.Import, frame: Frame) -> _End:
        for one in node.names:
            self.write(frame.names, (one.asname or one.name).partition(".")[0], UNKNOWN)
        return _ON

    def _do_importfrom(self, node: ast.ImportFrom, frame: Frame) -> _End:
        path = self.sources.file_of(node.module or "") if not node.level else None
        for one in node.names:
            place = self.sources.find(path, one.name) if path else None
            found = self.at(place) if place else UNKNOWN
            self.write(frame.names, one.asname or one.name, found)
        return _ON

    def _do_assign(self, node: ast.Assign, frame: Frame) -> _End:
        value = self.evaluate(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)
        return _ON

    def _do_annassign(self, node: ast.AnnAssign, frame: Frame) -> _End:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value, frame), frame)
        return _ON

    def _do_augassign(self, node: ast.AugAssign, frame: Frame) -> _End:
        before = self.evaluate(node.target, frame)
        value = self.evaluate(node.value, frame)
        if isinstance(before, (list, dict, set)):
            self.lose(before)
        self.assign(node.target, self.operated(node.op, before, value), frame)
        return _ON

    def _do_delete(self, node: ast.Delete, frame: Frame) -> _End:
        for target in node.targets:
            self.assign(target, UNKNOWN, frame)
        return _ON

    def _do_if(self, node: ast.If, frame: Frame) -> _End:
        answer = self.holds(node.test, frame)
        if answer is None:
            return self._either([node.body, node.orelse], frame)
        end = self._block(node.body if answer else node.orelse, frame)
        if end.error is not None:
            end.error.names = (*end.error.names, *_names(node.test))
        return end

    def _do_with(self, node: ast.With, frame: Frame) -> _End:
        for item in node.items:
            self.evaluate(item.context_expr, frame)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, UNKNOWN, frame)
        if any("suppress" in ast.unparse(item.context_expr) for item in node.items):
            return self._either([node.body, []], frame)
        return self._block(node.body, frame)

    def _do_try(self, node: ast.Try, frame: Frame) -> _End:
        ways = [[*node.body, *node.orelse], *(handler.body for handler in node.handlers)]
        for handler in node.handlers:
            if handler.name:
                self.write(frame.names, handler.name, UNKNOWN)
        end = self._either(ways if node.handlers else [*ways, []], frame)
        after = self._block(node.finalbody, frame)
        return end if after.way is _Way.ON else after

    def _do_for(self, node: ast.For, frame: Frame) -> _End:
        items = items_of(self.evaluate(node.iter, frame))
        if items is None:
            return self._loop(node, frame)
        for item in items:
            self.assign(node.target, item, frame)
            end = self._block(node.body, frame)
            if end.way is _Way.BREAK:
                return _ON
            if end.way is _Way.LOOSE:
                return self._loop(node, frame)
            if end.way not in {_Way.ON, _Way.NEXT}:
                return end
        return self._block(node.orelse, frame)

    def _do_while(self, node: ast.While, frame: Frame) -> _End:
        return _ON if self.holds(node.test, frame) is False else self._loop(node, frame)

    # --- ways that may or may not be gone

    def _loop(self, node: ast.For | ast.While, frame: Frame) -> _End:
        if isinstance(node, ast.For):
            self.assign(node.target, UNKNOWN, frame)
        self._forget(node.body, frame)
        end = self._forget(node.body, frame)  # what one turn sets, the next one may read
        return _End(_Way.MAYBE) if end.way is _Way.MAYBE else self._block(node.orelse, frame)

    def _either(self, ways: Sequence[Sequence[ast.stmt]], frame: Frame) -> _End:
        """Go on after one of several ways, nobody knows which."""
        tried = [self._tried(way, frame) for way in ways]
        going = [i for i, (end, _) in enumerate(tried) if end.way is not _Way.RAISE]
        if not going:
            return tried[0][0]
        if len(going) == 1:
            return self._block(ways[going[0]], frame)  # the others do not come back
        return self._blurred(tried)

    def _forget(self, way: Sequence[ast.stmt], frame: Frame) -> _End:
        """Go a way that may not be gone, and back."""
        return self._blurred([self._tried(way, frame), (_ON, [])])

    def _blurred(self, tried: Sequence[_Tried]) -> _End:
        """Take what one of the ways sets as not known any more."""
        for end, written in tried:
            for into, key, value in written if end.way is not _Way.RAISE else ():
                if into.get(key, UNKNOWN) is not value:
                    self.write(into, key, UNKNOWN)
        ways = {end.way for end, _ in tried} - {_Way.RAISE, _Way.ON}
        if not ways:
            return _ON
        return _End(_Way.MAYBE if ways & {_Way.RETURN, _Way.MAYBE} else _Way.LOOSE)

    def _tried(self, way: Sequence[ast.stmt], frame: Frame) -> _Tried:
        before, self.trail = self.trail, []
        try:
            end = self._block(way, frame)
            written = [(into, key, into.get(key, UNKNOWN)) for into, key, _ in self.trail]
            undo(self.trail)
        finally:
            self.trail = before
        return end, written


@lru_cache(maxsize=2048)
def _is_plain(node: ast.FunctionDef) -> bool:
    odd = (ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)
    return all(last_name(mark) in _TRANSPARENT for mark in node.decorator_list) and not any(
        isinstance(one, odd) for one in ast.walk(node)
    )


def _names(test: ast.expr) -> tuple[str, ...]:
    return tuple(
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(test)
        if isinstance(node, (ast.Attribute, ast.Name))
    )
