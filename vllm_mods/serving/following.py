"""Follows methods of a tree's arguments and config classes on known values.

A branch whose test is unknown is skipped, and what it may set is unknown from then on. So whatever is still raised
does not depend on the model, the machine or the environment.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_mods.serving import configs, hints, values
from vllm_mods.serving.configs import ConfigField
from vllm_mods.serving.evaluation import (
    UNKNOWN,
    ConfigObject,
    Evaluator,
    Frame,
    RefusedError,
    is_known,
    is_quiet,
    names_in,
)
from vllm_mods.serving.source import ClassPlace, FunctionPlace, dotted

_MODEL = "self.create_model_config"
_STEPS = 20_000
_DEEPEST = 8
_LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)


class _Leave(Exception):
    """A function returns here, or may return."""

    def __init__(self, value: Any = UNKNOWN) -> None:
        super().__init__()
        self.value = value


class Follower(Evaluator):
    """Follows methods of the arguments and of config classes."""

    steps = 0
    depth = 0

    def defaults(self, cls: ClassPlace) -> dict[str, Any]:
        """Return the defaults of a class's fields, ``UNKNOWN`` where one is computed."""
        return {
            node.target.id: self._default(base.path, node.value)
            for base in reversed(self.sources.bases(cls))
            for node in base.node.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }

    def _default(self, path: str, node: ast.expr | None) -> Any:
        if isinstance(node, ast.Attribute):  # `max_model_len: int = ModelConfig.max_model_len`
            cls = self.sources.find_class(path, dotted(node.value))
            return UNKNOWN if cls is None else self.defaults(cls).get(node.attr, UNKNOWN)
        if isinstance(node, ast.Call) and dotted(node.func) in {"Field", "field"}:
            given = {one.arg: one.value for one in node.keywords}
            node = given.get("default", node.args[0] if node.args else None)
        return node.value if isinstance(node, ast.Constant) and node.value is not ... else UNKNOWN

    def make(self, cls: ClassPlace, given: Mapping[str, Any]) -> Any:
        """Make an object of a config class as pydantic would. Raises ``RefusedError``."""
        validators = [*configs.validators(self.sources, cls, "")]
        if any(validator.whole and validator.early for validator in validators):
            return UNKNOWN  # what is given may be changed first
        config = ConfigObject(cls, self.defaults(cls))
        fields = configs.fields(self.sources, cls)
        for name, value in given.items():
            if name in fields:
                config.attributes[name] = self._set_field(cls, fields[name], value)
            elif configs.takes_any_key(self.sources, cls) is None:
                raise RefusedError(f"{config!r} has no {name!r}", (name,))
        if post := self.sources.method(cls, "__post_init__"):
            self.run(post, config, given)
        for validator in validators:
            if validator.whole and validator.mode == "after":
                self.run(validator.at, config, {})
        return config

    def _set_field(self, cls: ClassPlace, field: ConfigField, value: Any) -> Any:
        """Return what a field holds. Raises ``RefusedError``."""
        late = []
        for validator in configs.validators(self.sources, cls, field.name):
            if validator.whole or (validator.mode == "wrap" and validator.lets_none_through):
                continue
            if validator.mode == "before":
                value = self._run_validator(validator.at, value)
            elif validator.early:
                return UNKNOWN
            else:
                late.append(validator.at)
        value = self._convert(field, value)
        for at in late:
            value = self._run_validator(at, value)
        return value

    def _run_validator(self, at: FunctionPlace, value: Any) -> Any:
        """Return what a validator makes of a value. Raises ``RefusedError``."""
        parameters = [arg.arg for arg in at.node.args.args]
        if not is_known(value) or len(parameters) != 2:
            return UNKNOWN
        return self._follow(at, Frame(at.path, {parameters[1]: value}))

    def _convert(self, field: ConfigField, value: Any) -> Any:
        """Return a value that pydantic keeps as it is, else ``UNKNOWN``. Raises ``RefusedError``."""
        if value is None or not is_known(value) or values.is_unchecked(field):
            return value
        kinds = hints.hints(self.sources, field.annotation)
        inner = hints.config_class(self.sources, kinds)
        if isinstance(value, dict) and inner is not None:
            return self.make(inner, value)
        wrong = [*values.type_problems(self.sources, kinds, value, field.name)]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            wrong += values.bound_problems(field, value, field.name)
        if wrong:
            raise RefusedError(wrong[0].message, (field.name,))
        names = {hint.name for hint in kinds if hint.kind == "builtin"}
        stays = type(value).__name__ in names or value in hints.literals(kinds)
        return value if stays else UNKNOWN

    # --- calls

    def call(self, node: ast.Call, frame: Frame) -> Any:
        """Follow a method of the object or a config class; objects that are passed to anything else become unknown."""
        if is_quiet(node):
            return None
        name = dotted(node.func) or ""
        given = [self.value(one, frame) for one in node.args]
        named = self._keywords(node, frame)
        cls = self.sources.find_class(frame.path, name)
        if cls is not None and named is not None and not given and self._is_config(cls):
            return self.make(cls, named)
        owner = frame.owner
        if owner is not None and name.startswith("self.") and name.count(".") == 1:
            method = self.sources.method(owner.cls, name[5:])
            if method is not None and named is not None:
                parameters = (arg.arg for arg in method.node.args.args[1:])
                bound = dict(zip(parameters, given, strict=False))
                value = self.run(method, owner, bound | named)
                return self._model(owner) if name == _MODEL else value
            owner.lose()
        for value in (*given, *(named or {}).values()):
            if isinstance(value, ConfigObject):
                value.lose()
        return UNKNOWN

    def _keywords(self, node: ast.Call, frame: Frame) -> dict[str, Any] | None:
        """Return the named arguments of a call, None if they are unknown."""
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, frame)
            if keyword.arg is None and not isinstance(value, dict):
                return None
            named |= value if keyword.arg is None else {keyword.arg: value}
        return named

    def _is_config(self, cls: ClassPlace) -> bool:
        own = self.sources.method(cls, "__init__")
        return own is None and configs.is_dataclass(self.sources, cls)

    def _model(self, args: ConfigObject) -> Any:
        """Return the model's configuration, of which only the requested length is known."""
        cls = self.sources.find_class("vllm/config/__init__.py", "ModelConfig")
        length = args.attributes.get("max_model_len", UNKNOWN)
        asked = {"max_model_len": length} if type(length) is int and length > 0 else {}
        return UNKNOWN if cls is None else ConfigObject(cls, asked, fixed=True)

    def run(self, method: FunctionPlace, owner: ConfigObject, given: Mapping[str, Any]) -> Any:
        """Return what a method returns. Raises ``RefusedError`` if every path of it raises."""
        spec = method.node.args
        if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(method.node)):
            return UNKNOWN  # nothing of it is run yet
        names = {arg.arg: given.get(arg.arg, UNKNOWN) for arg in (*spec.args, *spec.kwonlyargs)}
        for arg, default in zip(reversed(spec.args), reversed(spec.defaults), strict=False):
            if arg.arg not in given and isinstance(default, ast.Constant):
                names[arg.arg] = default.value
        first = spec.args[0].arg if spec.args else ""
        return self._follow(method, Frame(method.path, {**names, first: owner}, owner))

    def _follow(self, method: FunctionPlace, frame: Frame) -> Any:
        """Return what a method returns, as far as that is known."""
        self.depth += 1
        try:
            if self.depth <= _DEEPEST:
                self._block(method.node.body, frame)
                return None
            self._forget(method.node.body, frame)
        except _Leave as leave:
            return leave.value
        finally:
            self.depth -= 1
        return UNKNOWN

    # --- statements

    def _block(self, body: Sequence[ast.stmt], frame: Frame) -> None:
        """Follow statements. Raises ``_Leave`` where they end, or may end, the function."""
        for node in body:
            self.steps += 1
            if self.steps > _STEPS:
                raise _Leave
            self._statement(node, frame)

    def _statement(self, node: ast.stmt, frame: Frame) -> None:  # noqa: C901  (a kind each)
        match node:
            case ast.Expr(value=value):
                self.value(value, frame)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self.value(value, frame), frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.value(value, frame), frame)
            case ast.Return(value=value):
                raise _Leave(self.value(value, frame))
            case ast.Raise(exc=exc):
                self._refuse(exc, frame, ())
            case ast.Assert(test=test, msg=msg):
                if self.holds(test, frame) is False:
                    self._refuse(msg or test, frame, names_in(test))
            case ast.If(test=test, body=body, orelse=other):
                answer = self.holds(test, frame)
                if answer is None:
                    self._forget([node], frame)
                    return
                try:
                    self._block(body if answer else other, frame)
                except RefusedError as error:
                    error.names = (*error.names, *names_in(test))
                    raise
            case _:
                self._forget([node], frame)

    def _refuse(self, node: ast.expr | None, frame: Frame, names: tuple[str, ...]) -> None:
        call = node if isinstance(node, ast.Call) else None
        text = self.value(call.args[0] if call and call.args else node, frame)
        if isinstance(text, list):
            text = " ".join(map(str, text))
        shown = text if isinstance(text, str) and text else ast.unparse(node) if node else "raises"
        raise RefusedError(shown, names)

    def _assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
            return
        owner = self.value(target.value, frame) if isinstance(target, ast.Attribute) else None
        if isinstance(target, ast.Attribute) and isinstance(owner, ConfigObject):
            owner.attributes[target.attr] = value
        else:
            self._forget([ast.Expr(target)], frame)

    def _forget(
        self, body: Sequence[ast.stmt], frame: Frame, seen: frozenset[str] = frozenset()
    ) -> None:
        """Mark as unknown what statements that may run could set. Raises ``_Leave`` if they could return."""
        for part in body:
            if not isinstance(part, ast.If):
                self._forget_nodes(part, frame, seen)
                continue
            asks = any(isinstance(node, ast.Call) for node in ast.walk(part.test))
            answer = None if asks else self.holds(part.test, frame)
            self._forget_nodes(part.test, frame, seen)
            self._forget(part.body if answer is not False else [], frame, seen)
            self._forget(part.orelse if answer is not True else [], frame, seen)

    def _forget_nodes(self, part: ast.AST, frame: Frame, seen: frozenset[str]) -> None:
        leaves = False
        if isinstance(part, ast.Assign) and self._changes_nothing(part, frame):
            return
        for node in ast.walk(part):
            leaves |= isinstance(node, _LEAVES)
            if isinstance(node, ast.Name):
                held = frame.names.get(node.id)
                if isinstance(node.ctx, ast.Store) or isinstance(held, (list, dict)):
                    frame.names[node.id] = UNKNOWN
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                owner = frame.names.get(dotted(node.value) or "")
                if isinstance(owner, ConfigObject):
                    owner.attributes[node.attr] = UNKNOWN
            elif isinstance(node, ast.Call) and not is_quiet(node):
                self._forget_call(node, frame, seen)
        if leaves and not seen:
            raise _Leave

    def _changes_nothing(self, node: ast.Assign, frame: Frame) -> bool:
        """Return True if an assignment changes nothing."""
        plain = isinstance(node.value, ast.Constant) and isinstance(node.targets[0], ast.Attribute)
        return plain and self.value(node.targets[0], frame) == self.value(node.value, frame)

    def _forget_call(self, node: ast.Call, frame: Frame, seen: frozenset[str]) -> None:
        """Mark as unknown what a call could set, if it runs."""
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            owner = frame.names.get(argument.id) if isinstance(argument, ast.Name) else None
            if isinstance(owner, ConfigObject):
                owner.lose()
        name = dotted(node.func) or ""
        if frame.owner is None or not name.startswith("self.") or name in seen:
            return
        method = self.sources.method(frame.owner.cls, name[5:])
        if method is None:
            frame.owner.attributes.pop(name.split(".")[1], None)  # `self.sizes.append(…)`
        else:
            inner = Frame(method.path, {"self": frame.owner}, frame.owner)
            self._forget(method.node.body, inner, seen | {name})
