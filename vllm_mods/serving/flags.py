"""A tree → the flags that its ``vllm serve`` takes.

vLLM makes them in ``make_arg_parser`` from the fields of config classes: ``get_kwargs(ModelConfig)``,
then ``add_argument("--dtype", **model_kwargs["dtype"])``, with a few keywords changed in between.
The same steps are followed here on the syntax tree. What a flag takes is looked up only when somebody
asks (``shape.py``): its names are known from here.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import configs, flag_rules
from vllm_mods.serving.source import (
    AnyPlace,
    ClassPlace,
    FunctionPlace,
    ModuleSources,
    SourcePlace,
    as_class,
    text_of,
)

_ENTRY = "make_arg_parser"
# Where the files are that make the flags.
_FOLDER = "vllm/entrypoints"
_FILE = "/cli_args.py"


class Flag(NamedTuple):
    """One flag. ``names`` is as vLLM writes them, short ones too.

    ``owner`` and ``field`` are the config class, or where it is named, and the field of it that the
    flag is made from (``class_of`` finds the class).
    ``given`` has the keywords of ``add_argument`` that are stated otherwise, ``None`` for one taken
    away; ``removed`` the choices taken away; ``computed`` the keywords changed in a way only a run
    can tell.
    """

    names: tuple[str, ...]
    owner: AnyPlace | None = None
    field: str | None = None
    given: Mapping[str, AnyPlace | None] = {}
    removed: tuple[object, ...] = ()
    computed: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The first long name, else the first one."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])


class Flags(NamedTuple):
    """All flags of a tree."""

    flags: tuple[Flag, ...]
    by_name: Mapping[str, Flag]
    rules: flag_rules.FlagRules
    entry: FunctionPlace


@dataclass(slots=True)
class _FlagChange:
    """What was done to the keywords of one field after ``get_kwargs``."""

    given: dict[str, AnyPlace | None] = field(default_factory=dict)
    removed: list[object] = field(default_factory=list)
    computed: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Kwargs:
    """The dict that ``get_kwargs(Cls)`` returns. ``cls`` is the class, or where it is named."""

    cls: AnyPlace
    changes: defaultdict[str, _FlagChange] = field(default_factory=lambda: defaultdict(_FlagChange))


class _One(NamedTuple):
    """``get_kwargs(Cls)["field"]`` under a name of its own."""

    kwargs: _Kwargs
    field: str

    @property
    def change(self) -> _FlagChange:
        return self.kwargs.changes[self.field]


class _FlagScope(NamedTuple):
    """A function being followed: its file, the class it was found in and the one it is called on."""

    path: str
    inside: ClassPlace | None
    cls: ClassPlace | None
    names: dict[str, _Kwargs | _One]


def read(sources: ModuleSources) -> Flags:
    """Return the flags of ``vllm serve``. Raises ``TreeError`` where the tree does not say them."""
    entry = _entry(sources)
    reader = _FlagReader(sources)
    reader.function(entry, _FlagScope(entry.path, None, None, {}))
    flags = tuple(reader.flags)
    return Flags(
        flags=flags,
        by_name={name: flag for flag in flags for name in flag.names},
        rules=flag_rules.read(sources, reader.makers),
        entry=entry,
    )


def _entry(sources: ModuleSources) -> FunctionPlace:
    """Find ``make_arg_parser``: its file has moved twice."""
    named = [path for path in sources.tree.paths(_FOLDER) if path.endswith(_FILE)]
    for path in sorted(named, key=lambda path: (path.count("/"), path)):
        entry = sources.find(path, _ENTRY)
        if entry is not None and isinstance(entry.node, ast.FunctionDef):
            return SourcePlace(entry.path, entry.node)
    raise TreeError(
        f"{sources.tree.spec}: no cli_args.py below {_FOLDER} has a function {_ENTRY}, so its flags cannot be read",
        hint="serve-check reads vLLM 0.9 and newer",
    )


class _FlagReader:
    """Follows the functions that add arguments, statement by statement."""

    def __init__(self, sources: ModuleSources) -> None:
        self.sources = sources
        self.flags: list[Flag] = []
        self.makers: dict[str, None] = {}
        self.followed: set[FunctionPlace] = set()

    def function(self, at: FunctionPlace, scope: _FlagScope) -> _Kwargs | None:
        """Follow one function; return the keywords that it returns, if it does."""
        self.block(at.node.body, scope)
        last = at.node.body[-1]
        value = scope.names.get(dotted(last.value) or "") if isinstance(last, ast.Return) else None
        return value if isinstance(value, _Kwargs) else None

    def block(self, body: list[ast.stmt], scope: _FlagScope) -> None:
        for node in body:
            match node:
                case ast.Assign(targets=[target], value=value):
                    self.assign(target, value, scope)
                case ast.AugAssign(target=changed):
                    if (place := self.target(changed, scope)) is not None:
                        place[0].computed.add(place[1])
                case ast.Delete(targets=targets):
                    for target in targets:
                        self.set(target, None, scope)
                case ast.Expr(value=ast.Call() as call) | ast.Return(value=ast.Call() as call):
                    self.call(call, scope)
                case ast.If():
                    # Either branch may be the one that runs; a flag of both is one flag.
                    self.block(node.body, scope)
                    self.block(node.orelse, scope)
                case ast.For():
                    self.loop(node, scope)
                case _:
                    pass

    def assign(self, target: ast.expr, value: ast.expr, scope: _FlagScope) -> None:
        if isinstance(target, ast.Subscript):
            self.set(target, SourcePlace(scope.path, value), scope)
            return
        meant = self.value(value, scope)
        if meant is not None and isinstance(target, ast.Name):
            scope.names[target.id] = meant

    def value(self, node: ast.expr, scope: _FlagScope) -> _Kwargs | _One | None:
        if isinstance(node, ast.Call):
            return self.call(node, scope)
        if isinstance(node, ast.Subscript):
            whole, name = self.value(node.value, scope), text_of(node.slice)
            return _One(whole, name) if isinstance(whole, _Kwargs) and name else None
        if isinstance(node, ast.Name):
            return scope.names.get(node.id)
        return None

    def call(self, node: ast.Call, scope: _FlagScope) -> _Kwargs | None:
        match node.func:
            case ast.Attribute(attr="add_argument"):
                self.add(node, scope)
            case ast.Attribute(attr="remove" | "append" | "extend" | "insert" | "update") as func:
                self.mutate(node, func, scope)
            case ast.Name(id="get_kwargs") if node.args:
                return self.kwargs(node, scope)
            case ast.Attribute() as func:
                return self.method(node, func, scope)
            case _:
                pass
        return None

    def kwargs(self, node: ast.Call, scope: _FlagScope) -> _Kwargs | None:
        maker = self.sources.find(scope.path, "get_kwargs") or self.imported(scope)
        if maker is not None:
            self.makers[maker.path] = None
        named = SourcePlace(scope.path, node.args[0])
        cls = scope.cls if dotted(named.node) == "cls" else named
        return None if cls is None else _Kwargs(cls)

    def imported(self, scope: _FlagScope) -> AnyPlace | None:
        """Find ``get_kwargs`` where the function itself imports it."""
        for node in self.sources.nodes(scope.path):
            if isinstance(node, ast.ImportFrom) and any(a.name == "get_kwargs" for a in node.names):
                path = self.sources.file_of(node.module or "")
                return self.sources.find(path, "get_kwargs") if path else None
        return None

    def method(self, node: ast.Call, func: ast.Attribute, scope: _FlagScope) -> _Kwargs | None:
        """Follow ``FrontendArgs.add_cli_args(parser)``, ``cls.…`` and ``super().…``."""
        upwards = isinstance(func.value, ast.Call) and dotted(func.value.func) == "super"
        named = dotted(func.value)
        cls = scope.cls if upwards or named == "cls" else self.sources.find_class(scope.path, named)
        order = [*self.sources.bases(cls)] if cls else []
        if upwards and scope.inside is not None:
            order = order[order.index(scope.inside) + 1 :] if scope.inside in order else []
        methods = (
            (owner, SourcePlace(owner.path, member))
            for owner in order
            for member in owner.node.body
            if isinstance(member, ast.FunctionDef) and member.name == func.attr
        )
        owner, followed = next(methods, (None, None))
        if followed is None or followed in self.followed:
            return None
        self.followed.add(followed)
        parameters = [arg.arg for arg in followed.node.args.args if arg.arg not in {"cls", "self"}]
        passed = (self.value(arg, scope) for arg in node.args)
        names = {
            name: value
            for name, value in zip(parameters, passed, strict=False)
            if value is not None
        }
        return self.function(followed, _FlagScope(followed.path, owner, cls, names))

    def target(self, node: ast.expr, scope: _FlagScope) -> tuple[_FlagChange, str] | None:
        """Find what ``kwargs["field"]["keyword"]`` stands for."""
        if not isinstance(node, ast.Subscript):
            return None
        kwargs, key = self.value(node.value, scope), text_of(node.slice)
        return (kwargs.change, key) if isinstance(kwargs, _One) and key else None

    def set(self, node: ast.expr, value: AnyPlace | None, scope: _FlagScope) -> None:
        target = self.target(node, scope)
        if target is not None:
            target[0].given[target[1]] = value

    def mutate(self, node: ast.Call, func: ast.Attribute, scope: _FlagScope) -> None:
        target = self.target(func.value, scope)
        if target is None:
            return
        value = constant(self.sources, SourcePlace(scope.path, node.args[0])) if node.args else None
        if func.attr == "remove" and value is not None:
            target[0].removed.append(value)
        else:
            target[0].computed.add(target[1])

    def loop(self, node: ast.For, scope: _FlagScope) -> None:
        """``for key, value in kwargs.items(): … add_argument(f"--{key}", **value)``: every field."""
        over = node.iter.func if isinstance(node.iter, ast.Call) else None
        whole = self.value(over.value, scope) if isinstance(over, ast.Attribute) else None
        adds = any(
            isinstance(one, ast.Call) and (dotted(one.func) or "").endswith(".add_argument")
            for one in ast.walk(node)
        )
        if not adds:
            self.block(node.body, scope)
            return
        if not isinstance(whole, _Kwargs):
            raise TreeError(
                f"{scope.path}:{node.lineno}: this loop adds flags that serve-check cannot read"
            )
        cls = class_of(self.sources, whole.cls)
        for name in configs.fields(self.sources, cls) if cls else ():
            keywords = _One(whole, name)
            more = constant(self.sources, keywords.change.given.get("flags"))
            short = more if isinstance(more, (list, tuple)) else ()
            self.flags.append(_flag((*short, f"--{name.replace('_', '-')}"), keywords, {}))

    def add(self, node: ast.Call, scope: _FlagScope) -> None:
        names = tuple(name for arg in node.args if (name := text_of(arg)))
        if not names or not names[0].startswith("-"):
            return  # a positional
        given: dict[str, AnyPlace | None] = {}
        base: _One | None = None
        for key, value in _keywords(node):
            if key is not None:
                given[key] = SourcePlace(scope.path, value)
            else:
                meant = self.value(value, scope)
                base = meant if isinstance(meant, _One) else base
        if not any(name in one.names for one in self.flags for name in names):
            self.flags.append(_flag(names, base, given))  # else the other branch of an `if` has it


def _flag(names: tuple[str, ...], of: _One | None, given: Mapping[str, AnyPlace | None]) -> Flag:
    if of is None:
        return Flag(names, given=given)
    change = of.change
    return Flag(
        names=names,
        owner=of.kwargs.cls,
        field=of.field,
        given={**change.given, **given},
        removed=tuple(change.removed),
        computed=frozenset(change.computed),
    )


def class_of(sources: ModuleSources, at: AnyPlace | None) -> ClassPlace | None:
    """Return the config class that is somewhere, or named there; ``None`` if the tree has none."""
    return as_class(at) or (sources.find_class(at.path, dotted(at.node)) if at else None)


def constant(sources: ModuleSources, at: AnyPlace | None) -> object | None:
    """Return the value of an expression without anything to compute in it; else ``None``."""
    if at is None:
        return None
    try:
        value: object = ast.literal_eval(at.node)
    except ValueError:
        inner = sources.value(at.path, dotted(at.node))
        return None if inner is None else constant(sources, SourcePlace(at.path, inner))
    return value


def _keywords(node: ast.Call) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield the keywords of a call; what stands behind ``**`` has no name, ``**{**x, …}`` opened."""
    for keyword in node.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                yield (None if key is None else text_of(key)), value
        else:
            yield keyword.arg, keyword.value
