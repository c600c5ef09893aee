"""A tree → the flags that its ``vllm serve`` takes.

vLLM makes them in ``make_arg_parser`` from the fields of config classes: ``get_kwargs(ModelConfig)``,
then ``add_argument("--dtype", **model_kwargs["dtype"])``, with a few keywords changed in between.
The same steps are followed here on the syntax tree. What a flag takes is looked up only when somebody
asks (``shape.py``): its names are known from here.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.fit.signatures import dotted
from vllm_mods.serving import configs, source

_ENTRY = "make_arg_parser"
# Where the files are that make the flags.
_FOLDER = "vllm/entrypoints"
_FILE = "/cli_args.py"


class Flag(NamedTuple):
    """One flag. ``names`` is as vLLM writes them, short ones too.

    ``owner`` and ``field`` are the config class, or where it is named, and the field of it that the flag is
    made from (``class_of`` finds the class). ``given`` has the keywords of ``add_argument`` that are stated
    otherwise, ``None`` for one taken away; ``removed`` the choices taken away; ``computed`` the keywords
    changed in a way only a run can tell.
    """

    names: tuple[str, ...]
    owner: source.AnyPlace | None
    field: str | None
    given: dict[str, source.AnyPlace | None]
    removed: list[object]
    computed: set[str]

    @property
    def name(self) -> str:
        """The first long name, else the first one."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])


class _Kwargs:
    """The dict that ``get_kwargs(Cls)`` returns: the flags, still without names, by their fields."""

    def __init__(self, cls: source.AnyPlace) -> None:
        """Take the class, or where it is named."""
        self.cls = cls
        self.fields: dict[str, Flag] = {}

    def __getitem__(self, field: str) -> Flag:
        return self.fields.setdefault(field, Flag((), self.cls, field, {}, [], set()))


class _FlagScope(NamedTuple):
    """A function being followed: its file, the class it was found in and the one it is called on."""

    path: str
    inside: source.ClassPlace | None
    cls: source.ClassPlace | None
    names: dict[str, _Kwargs | Flag]


def read(sources: source.ModuleSources) -> tuple[tuple[Flag, ...], source.FunctionPlace]:
    """Return the flags of ``vllm serve``, and the function that makes them. Raises ``TreeError`` where the tree does not say them."""
    entry = _entry(sources)
    reader = _FlagReader(sources)
    reader.function(entry, _FlagScope(entry.path, None, None, {}))
    return tuple(reader.flags), entry


def _entry(sources: source.ModuleSources) -> source.FunctionPlace:
    """Find ``make_arg_parser``: its file has moved twice."""
    named = [path for path in sources.tree.paths(_FOLDER) if path.endswith(_FILE)]
    for path in sorted(named, key=lambda path: (path.count("/"), path)):
        entry = sources.find(path, _ENTRY)
        if entry is not None and isinstance(entry.node, ast.FunctionDef):
            return source.SourcePlace(entry.path, entry.node)
    why = f"{sources.tree.spec}: no cli_args.py below {_FOLDER} has a function {_ENTRY}, so vLLM's flags cannot be read"
    raise TreeError(why, hint="serve-check reads vLLM 0.9 and newer")


class _FlagReader:
    """Follows the functions that add arguments, statement by statement."""

    def __init__(self, sources: source.ModuleSources) -> None:
        self.sources = sources
        self.flags: list[Flag] = []
        self.followed: set[source.FunctionPlace] = set()

    def function(self, at: source.FunctionPlace, scope: _FlagScope) -> _Kwargs | None:
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
            self.set(target, source.SourcePlace(scope.path, value), scope)
            return
        meant = self.value(value, scope)
        if meant is not None and isinstance(target, ast.Name):
            scope.names[target.id] = meant

    def value(self, node: ast.expr, scope: _FlagScope) -> _Kwargs | Flag | None:
        if isinstance(node, ast.Call):
            return self.call(node, scope)
        if isinstance(node, ast.Subscript):
            whole, name = self.value(node.value, scope), source.text_of(node.slice)
            return whole[name] if isinstance(whole, _Kwargs) and name else None
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
                named = source.SourcePlace(scope.path, node.args[0])
                cls = scope.cls if dotted(named.node) == "cls" else named
                return None if cls is None else _Kwargs(cls)
            case ast.Attribute() as func:
                return self.method(node, func, scope)
            case _:
                pass
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
            (owner, source.SourcePlace(owner.path, member))
            for owner in order
            for member in owner.node.body
            if isinstance(member, ast.FunctionDef) and member.name == func.attr
        )
        owner, followed = next(methods, (None, None))
        if followed is None or followed in self.followed:
            return None
        self.followed.add(followed)
        parameters = [arg.arg for arg in followed.node.args.args if arg.arg not in {"cls", "self"}]
        pairs = zip(parameters, (self.value(arg, scope) for arg in node.args), strict=False)
        names = {name: value for name, value in pairs if value is not None}
        return self.function(followed, _FlagScope(followed.path, owner, cls, names))

    def target(self, node: ast.expr, scope: _FlagScope) -> tuple[Flag, str] | None:
        """Find what ``kwargs["field"]["keyword"]`` stands for."""
        if not isinstance(node, ast.Subscript):
            return None
        flag, key = self.value(node.value, scope), source.text_of(node.slice)
        return (flag, key) if isinstance(flag, Flag) and key else None

    def set(self, node: ast.expr, value: source.AnyPlace | None, scope: _FlagScope) -> None:
        target = self.target(node, scope)
        if target is not None:
            target[0].given[target[1]] = value

    def mutate(self, node: ast.Call, func: ast.Attribute, scope: _FlagScope) -> None:
        target = self.target(func.value, scope)
        if target is None:
            return
        at = source.SourcePlace(scope.path, node.args[0]) if node.args else None
        value = constant(self.sources, at)
        if func.attr == "remove" and value is not None:
            target[0].removed.append(value)
        else:
            target[0].computed.add(target[1])

    def loop(self, node: ast.For, scope: _FlagScope) -> None:
        """``for key, value in kwargs.items(): … add_argument(f"--{key}", **value)``: every field."""
        over = node.iter.func if isinstance(node.iter, ast.Call) else None
        whole = self.value(over.value, scope) if isinstance(over, ast.Attribute) else None
        calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
        if not any((dotted(one) or "").endswith(".add_argument") for one in calls):
            self.block(node.body, scope)
            return
        if not isinstance(whole, _Kwargs):
            raise TreeError(f"{scope.path}:{node.lineno}: cannot read which flags this loop adds")
        cls = class_of(self.sources, whole.cls)
        for name in configs.fields(self.sources, cls) if cls else ():
            more = constant(self.sources, whole[name].given.get("flags"))
            short = more if isinstance(more, (list, tuple)) else ()
            self.flags.append(whole[name]._replace(names=(*short, f"--{name.replace('_', '-')}")))

    def add(self, node: ast.Call, scope: _FlagScope) -> None:
        names = tuple(name for arg in node.args if (name := source.text_of(arg)))
        if not names or not names[0].startswith("-"):
            return  # a positional
        given: dict[str, source.AnyPlace | None] = {}
        base = Flag(names, None, None, {}, [], set())
        for key, value in _keywords(node):
            if key is not None:
                given[key] = source.SourcePlace(scope.path, value)
            elif isinstance(meant := self.value(value, scope), Flag):
                base = meant
        if not any(name in one.names for one in self.flags for name in names):
            # else the other branch of an `if` has it
            self.flags.append(base._replace(names=names, given={**base.given, **given}))


def class_of(sources: source.ModuleSources, at: source.AnyPlace | None) -> source.ClassPlace | None:
    """Return the config class that is somewhere, or named there; ``None`` if the tree has none."""
    return source.as_class(at) or (sources.find_class(at.path, dotted(at.node)) if at else None)


def constant(sources: source.ModuleSources, at: source.AnyPlace | None) -> object | None:
    """Return the value of an expression without anything to compute in it; else ``None``."""
    if at is None:
        return None
    try:
        value: object = ast.literal_eval(at.node)
    except ValueError:
        inner = sources.value(at.path, dotted(at.node))
        return None if inner is None else constant(sources, source.SourcePlace(at.path, inner))
    return value


def _keywords(node: ast.Call) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield the keywords of a call; what stands behind ``**`` has no name, ``**{**x, …}`` opened."""
    for keyword in node.keywords:
        if keyword.arg is None and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                yield (None if key is None else source.text_of(key)), value
        else:
            yield keyword.arg, keyword.value
