"""Calls: of what Python itself has, on values as far as they are known."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from packaging.version import InvalidVersion, Version

from vllm_mods.serving import hints
from vllm_mods.serving.configs import Member
from vllm_mods.serving.expressions import Expressions
from vllm_mods.serving.meaning import (
    OF_TREE,
    UNKNOWN,
    CodeReference,
    Frame,
    KnownObject,
    RefusedError,
    items_of,
    known,
    truth,
)
from vllm_mods.serving.source import AnyPlace, SourcePlace, as_class, dotted

_PURE: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *(abs, bool, dict, float, frozenset, int, len, list, max, min, range),
        *(repr, round, set, sorted, str, sum, tuple, zip, enumerate, reversed),
    )
}
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "dict": dict, "list": list}
_TYPES |= {"tuple": tuple, "set": set}
# What changes a list, dict or set, and what only reads it or a text.
_CHANGES = {"append", "extend", "insert", "remove", "clear", "add", "update", "setdefault", "sort"}
_CHANGES |= {"pop", "discard"}
_READS = {"get", "items", "keys", "values", "copy", "count", "index", "union", "intersection"}
_READS |= {"lower", "upper", "strip", "split", "startswith", "endswith", "replace", "join"}
_READS |= {"removeprefix", "removesuffix", "partition", "rpartition", "isdigit", "is_integer"}
# What is known by its name, and how much it is handed at least.
_SPECIAL = {"cast": 2, "get_field": 2, "getattr": 2, "hasattr": 2, "setattr": 3, "deepcopy": 1}
_SPECIAL |= {"any": 1, "all": 1, "maybe_override_with_speculators": 0, "VllmConfig": 0}
_QUIET = ("logger", "warnings", "logging")
_LONGEST = 200
_PLAIN = (list, dict, set, str, tuple, frozenset, int)


class Calls(Expressions):
    """Evaluates calls. ``Statements`` runs the functions of the tree that are called."""

    def _as_call(self, node: ast.Call, frame: Frame) -> Any:  # noqa: PLR0911 - a way each
        name = dotted(node.func) or ""
        short = name.rpartition(".")[2]
        if name.partition(".")[0] in _QUIET:
            return None
        if name == "isinstance" and len(node.args) == 2:
            return self._isinstance(self.evaluate(node.args[0], frame), node.args[1], frame)
        if short == "get_args" and node.args:
            return self._literals(SourcePlace(frame.path, node.args[0]))
        given = self._arguments(node, frame)
        if given is None:
            return self._lose_all(node, frame)
        args, kwargs = given
        if short in _SPECIAL and len(args) >= _SPECIAL[short] and name not in frame.names:
            return getattr(self, f"_special_{short}")(args, kwargs)
        if self.sources.origin(frame.path, name) == "packaging.version.parse" and len(args) == 1:
            return self._version(args[0])
        if name in _PURE and name not in frame.names:
            return self._pure(_PURE[name], args, kwargs)
        return self._other_call(node, frame, args, kwargs)

    def _other_call(
        self, node: ast.Call, frame: Frame, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        if _is_super(node.func):
            return self.lose(*frame.names.values())
        if isinstance(node.func, ast.Attribute) and not self._is_module(node.func.value, frame):
            owner = self.evaluate(node.func.value, frame)
            if isinstance(owner, _PLAIN):
                return self._on_plain(owner, node.func.attr, args, kwargs)
        callee = self.evaluate(node.func, frame)
        if isinstance(callee, CodeReference):
            return self.call(callee, args, kwargs)
        return self._lose_all(node, frame, *args, *kwargs.values())

    # --- functions that are known by their names

    def _special_cast(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        return args[1]

    def _special_get_field(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        cls = as_class(args[0].place) if isinstance(args[0], CodeReference) else None
        return UNKNOWN if cls is None else self.attribute(KnownObject(cls), str(args[1]))

    def _special_maybe_override_with_speculators(
        self, _args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        # some checkpoints bring a draft of their own; what is given stays otherwise
        return (UNKNOWN, UNKNOWN, kwargs.get("vllm_speculative_config", UNKNOWN))

    def _special_getattr(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        return self.attribute(args[0], args[1]) if isinstance(args[1], str) else UNKNOWN

    def _special_hasattr(self, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return UNKNOWN if self._special_getattr(args, kwargs) is UNKNOWN else True

    def _special_setattr(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        if isinstance(args[0], KnownObject) and isinstance(args[1], str):
            self.write(args[0].attrs, args[1], args[2])
        else:
            self.lose(args[0])

    def _special_deepcopy(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        return self._copied(args[0])

    def _special_any(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        return self._decided(args[0], by=True)

    def _special_all(self, args: list[Any], _kwargs: dict[str, Any]) -> Any:
        return self._decided(args[0], by=False)

    # --- what is handed over

    def _arguments(self, node: ast.Call, frame: Frame) -> tuple[list[Any], dict[str, Any]] | None:
        """Return what is handed over, ``None`` where a star hands over what is not known."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        sure = True
        for one in node.args:
            value = self.evaluate(one.value if isinstance(one, ast.Starred) else one, frame)
            if not isinstance(one, ast.Starred):
                args.append(value)
            elif isinstance(value, (list, tuple)):
                args += value
            else:
                sure = False
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict):
                kwargs.update(value)
            else:
                sure = False
        return (args, kwargs) if sure else None

    def _lose_all(self, node: ast.Call, frame: Frame, *given: Any) -> Any:
        """Lose what is handed to something unknown, and what it is called on."""
        if not given:
            parts = [*node.args, *(keyword.value for keyword in node.keywords)]
            bare = (one.value if isinstance(one, ast.Starred) else one for one in parts)
            given = tuple(self.evaluate(one, frame) for one in bare)
        on = node.func.value if isinstance(node.func, ast.Attribute) else None
        return self.lose(*given, self.evaluate(on, frame))

    def _is_module(self, node: ast.expr, frame: Frame) -> bool:
        return isinstance(node, ast.Name) and node.id not in frame.names

    def _isinstance(self, value: Any, types: ast.expr, frame: Frame) -> Any:
        several = types.elts if isinstance(types, ast.Tuple) else [types]
        answers = [self._one_type(value, one, frame) for one in several]
        return True if True in answers else UNKNOWN if None in answers else False

    def _one_type(self, value: Any, node: ast.expr, frame: Frame) -> bool | None:
        name = dotted(node) or ""
        if value is UNKNOWN:
            return None
        if name in _TYPES:
            return None if isinstance(value, Member) else isinstance(value, _TYPES[name])
        found = self.evaluate(node, frame)
        if isinstance(found, CodeReference) and isinstance(found.place.node, ast.ClassDef):
            if isinstance(value, (KnownObject, Member)):
                bases = self.sources.bases(value.cls)
                return any(one.node is found.place.node for one in bases)
            return False
        # pydantic's own class of arguments is never a plain dict
        return False if name == "ArgsKwargs" else None

    def _literals(self, at: AnyPlace) -> Any:
        found = hints.hints(self.sources, at)
        if not found or any(hint.kind != "literal" for hint in found):
            return UNKNOWN
        return hints.literals(found)

    def _copied(self, value: Any) -> Any:
        if isinstance(value, KnownObject):
            return KnownObject(
                value.cls, {name: self._copied(one) for name, one in value.attrs.items()}
            )
        if isinstance(value, (list, tuple)):
            return type(value)(self._copied(one) for one in value)
        if isinstance(value, dict):
            return {key: self._copied(one) for key, one in value.items()}
        return value

    def _version(self, text: Any) -> Any:
        try:
            Version(text if isinstance(text, str) else "0")
        except InvalidVersion as error:
            raise RefusedError(str(error)) from error
        return UNKNOWN

    def _decided(self, value: Any, *, by: bool) -> Any:
        items = items_of(value)
        if items is None:
            return UNKNOWN
        answers = [truth(one) for one in items]
        return by if by in answers else UNKNOWN if None in answers else not by

    def _pure(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        values = [*args, *kwargs.values()]
        if function is len and len(args) == 1 and isinstance(args[0], (list, tuple, dict)):
            return len(args[0])
        if not known(values) or any(isinstance(one, OF_TREE) for one in values):
            return UNKNOWN
        if any(isinstance(v, int) and v > _LONGEST for v in values) and function is range:
            return UNKNOWN
        try:
            found = function(*args, **kwargs)
        except (TypeError, ValueError, OverflowError):
            return UNKNOWN
        return list(found) if isinstance(found, (zip, enumerate, reversed)) else found

    def _on_plain(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name in _CHANGES and isinstance(owner, (list, dict, set)):
            if self.trail is not None or not known([*args, *kwargs.values()]):
                return self.lose(owner)
        elif name not in _READS or any(one is UNKNOWN for one in args):
            return UNKNOWN
        try:
            found = getattr(owner, name)(*args, **kwargs)
        except (AttributeError, LookupError, TypeError, ValueError):
            return UNKNOWN
        return list(found) if name in {"items", "keys", "values"} else found


def _is_super(func: ast.expr) -> bool:
    inner = func.value if isinstance(func, ast.Attribute) else None
    return dotted(func) == "super" or (
        isinstance(inner, ast.Call) and dotted(inner.func) == "super"
    )
