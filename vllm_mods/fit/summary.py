"""From the bytes of a module to its summary, with the standard library's ``ast``.

What a class body says of the class is its methods, fields, and every attribute it can have.
"""

import ast
import re
from functools import lru_cache
from itertools import pairwise

from vllm_mods.fit.shapes import Binding, Class, Function, Import, Module, Value, words
from vllm_mods.fit.signatures import (
    DefNode,
    bindings,
    children,
    decorator_name,
    dotted,
    every,
    function_of,
    imports_of,
    is_name,
    statements,
)
from vllm_mods.formats import syntax_tree

_GLOBAL = re.compile(rb"^[ \t]+global (\w+(?:, \w+)*)[ \t]*(?:#.*)?$", re.MULTILINE)
# Generated modules hand ``globals()`` to who fills it: protobuf's ``_pb2``. Who returns something,
# ``LazyLoader("torch", globals(), "torch")``, makes that one name.
_MAKES_NAMES = re.compile(
    rb"^[ \t]*(?:\w+ = globals\(\)$|globals\(\)(?:\.update|\[[^]\n]*\] =)|exec\(|(?:\w+ = |setattr\()?sys\.modules\[__name__\]|[\w.]+\([^\n]*globals\(\))",
    re.MULTILINE,
)
# That of a module only replaces what is there.
_SETTER = re.compile(rb"^def __setattr__\(.*?(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
_LISTS = ast.List | ast.Tuple | ast.Set | ast.BinOp
# Calls on an instance that name an attribute in their first argument.
_REGISTERING = words("register_buffer register_parameter add_module register_module __setattr__")
# Calls whose first argument is the instance and whose second names an attribute.
_NAMING = {"setattr", "object.__setattr__", "super().__setattr__"}
_FIELD_MAKERS = {"field", "Field", "PrivateAttr"}
_READS = words("copy get items keys values")
_DEFAULTS = {"default", "default_factory", "factory", None}


def summarize(data: bytes) -> Module | None:
    """Summarize a file; ``None`` if it does not parse, or is nested too deeply for that."""
    node = syntax_tree.module(data)
    try:
        return None if node is None else _ModuleReader(node, data).module()
    except RecursionError:
        return None


# Few modules have a ``__getattr__``, and of those few are asked for a name that they do not bind.
@lru_cache(maxsize=8)
def lazy_names(data: bytes) -> tuple[frozenset[str], bool]:
    """Return the strings of a module with a ``__getattr__``, and whether that only looks names up."""
    tree = syntax_tree.module(data) or ast.Module([], [])
    strings = (node.value for node in every(tree) if isinstance(node, ast.Constant))
    return frozenset(value for value in strings if isinstance(value, str)), _looks_up(tree)


class _ModuleReader:
    """Collects the names of a module body."""

    def __init__(self, node: ast.Module, data: bytes) -> None:
        self.node = node
        self.data = data
        self.names: dict[str, list[Binding]] = {}
        self.stars: list[Import] = []

    def module(self) -> Module:
        for node, typing_only in statements(self.node.body):
            self._statement(node, typing_only=typing_only)
        dynamic = self._globals()
        return Module(
            names={name: tuple(bindings) for name, bindings in self.names.items()},
            stars=tuple(self.stars),
            exports=self._exports(),
            lazy="__getattr__" in self.names,
            dynamic=dynamic,
        )

    def _bind(self, name: str, binding: Binding) -> None:
        self.names.setdefault(name, []).append(binding)

    def _statement(self, node: ast.AST, *, typing_only: bool) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(node.name, function_of(node))
            case ast.ClassDef():
                self._bind(node.name, class_of(node))
            case ast.Import() | ast.ImportFrom():
                for name, alias in imports_of(node, typing_only=typing_only):
                    if name == "*":
                        self.stars.append(alias)
                    else:
                        self._bind(name, alias)
            case ast.ExceptHandler(name=str(name)):
                self._bind(name, Value(node.lineno))
            case _:
                alias_of = dotted(node.value) if isinstance(node, ast.Assign) else None
                for part in children(node):
                    if not isinstance(part, ast.stmt | ast.ExceptHandler | ast.match_case):
                        line = getattr(node, "lineno", getattr(part, "lineno", 0))
                        named = alias_of if isinstance(part, ast.Name) else None
                        for name, _ in bindings(part):
                            self._bind(name, Value(line, named, typing_only))

    def _exports(self) -> frozenset[str] | None:
        """Return what ``__all__`` lists; ``None`` where there is none, or only the run knows it."""
        texts: set[str] = set()
        for node, _ in statements(self.node.body):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id="__all__")], value=listed)
                    | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as listed)
                    | ast.AugAssign(target=ast.Name(id="__all__"), value=listed)
                    | ast.Expr(ast.Call(ast.Attribute(ast.Name(id="__all__")), args=[listed]))
                ):
                    parts = [part for part in every(listed) if not isinstance(part, _LISTS)]
                    plain = [str(part.value) for part in parts if isinstance(part, ast.Constant)]
                    if len(plain) != len(parts):
                        return None
                    texts.update(plain)
                case _:
                    pass
        return frozenset(texts) or None

    def _globals(self) -> bool:
        """Bind what functions declare global; tell whether names are made at run time."""
        for match in _GLOBAL.finditer(self.data):
            line = self.data.count(b"\n", 0, match.start(1)) + 1
            for name in match[1].decode().split(", "):
                self._bind(name, Value(line))
        return _MAKES_NAMES.search(_SETTER.sub(b"", self.data)) is not None


def _looks_up(tree: ast.Module) -> bool:
    """Tell whether ``__getattr__`` compares the name with constants, or looks for it in a table, and nothing else."""
    for node in every(tree):
        match node:
            case ast.FunctionDef(
                name="__getattr__", args=ast.arguments(args=[ast.arg(arg=name), *_])
            ) if name != "self":
                text = ast.unparse(node)
                compares = re.search(rf"\n +(?:el)?if {name} (?:==|(?:not )?in) (?!globals)", text)
                reads = re.search(rf"\bgetattr\(.*, {name}[,)]", text)
                return "raise " in text and compares is not None and reads is None
            case _:
                pass
    return False


def class_of(node: ast.ClassDef) -> Class:
    """Describe a class."""
    reader = _ClassReader()
    reader.read(node.body)
    return Class(
        name=node.name,
        line=node.lineno,
        end=node.end_lineno or node.lineno,
        bases=tuple(_head(base) for base in node.bases),
        decorators=tuple(map(decorator_name, node.decorator_list)),
        metaclass=next((dotted(k.value) for k in node.keywords if k.arg == "metaclass"), None),
        methods={name: _implementations(found) for name, found in reader.methods.items()},
        attributes=frozenset(reader.attributes),
        fields=reader.fields,
        nested=reader.nested,
        dynamic=reader.dynamic,
    )


def _head(node: ast.expr) -> str:
    return dotted(node.value if isinstance(node, ast.Subscript) else node) or "?"


def _implementations(functions: list[Function]) -> tuple[Function, ...]:
    """Leave out ``@overload`` declarations where the implementation is there too."""
    real = tuple(function for function in functions if "overload" not in function.marks)
    return real or tuple(functions)


class _ClassReader:
    def __init__(self) -> None:
        self.methods: dict[str, list[Function]] = {}
        self.attributes: set[str] = set()
        self.fields: dict[str, bool] = {}
        self.nested: dict[str, Class] = {}
        self.dynamic = False

    def read(self, body: list[ast.stmt]) -> None:
        for node, _ in statements(body):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    function = function_of(node)
                    self.methods.setdefault(node.name, []).append(function)
                    self.attributes.add(node.name)
                    self.dynamic |= node.name in {"__getattr__", "__getattribute__"}
                    self._method(node, function)
                case ast.ClassDef():
                    self.nested[node.name] = class_of(node)
                    self.attributes.add(node.name)
                case ast.AnnAssign():
                    self._field(node)
                case ast.stmt() if not hasattr(node, "body"):
                    self._other(node)
                case _:
                    pass

    def _other(self, node: ast.stmt) -> None:
        names = {name for name, _ in bindings(node)}
        self.attributes |= names
        for inner in every(node):
            if isinstance(inner, ast.Call) and dotted(inner.func) in {"locals().update", "exec"}:
                self.dynamic = True
            elif isinstance(inner, ast.Constant) and "__slots__" in names:
                self._name(inner)

    def _field(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            return
        name = node.target.id
        self.attributes.add(name)
        kind = _head(node.annotation).rpartition(".")[2]
        if kind not in {"ClassVar", "KW_ONLY"}:
            self.fields[name] = _is_required(node)

    def _method(self, node: DefNode, function: Function) -> None:
        if not (node.args.posonlyargs or node.args.args):
            return
        me = function.parameters[0].name
        # ``self.n += 1`` needs an ``n`` and makes none.
        augmented: list[ast.expr] = []
        stored: list[ast.Attribute] = []
        read: list[ast.expr] = []
        for inner in every(node):
            if isinstance(inner, ast.Attribute) and inner.attr in _READS:
                read.append(inner.value)
            if isinstance(inner, ast.Attribute) and is_name(inner.value, me):
                if isinstance(inner.ctx, ast.Store):
                    stored.append(inner)
                elif inner.attr == "__dict__" and inner not in read:
                    self.dynamic = True
            elif isinstance(inner, ast.Call):
                self._call(inner, me)
            elif isinstance(inner, ast.AugAssign):
                augmented.append(inner.target)
        self.attributes.update(one.attr for one in stored if one not in augmented)

    def _call(self, node: ast.Call, me: str) -> None:
        called = dotted(node.func) or ""
        head, _, last = called.rpartition(".")
        if called == "vars" and node.args and is_name(node.args[0], me):
            self.dynamic = True
        if called in _NAMING and node.args:
            arguments = node.args if called == "super().__setattr__" else node.args[1:]
            if called == "super().__setattr__" or is_name(node.args[0], me):
                self._name(arguments[0] if arguments else None)
        elif head == me and last in _REGISTERING:
            named = [one.value for one in node.keywords if one.arg in {"name", None}]
            self._name([*node.args, *named, None][0])
        elif called not in {"hasattr", "getattr", "delattr"}:
            # ``replace_parameter(self, "weight", …)`` sets what it names.
            sets = last.startswith(("replace", "set", "register"))
            for first, following in pairwise(node.args):
                if is_name(first, me) and (sets or isinstance(following, ast.Constant)):
                    self._name(following)

    def _name(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.attributes.add(node.value)
        elif not isinstance(node, ast.Constant):
            self.dynamic = True


def _is_required(node: ast.AnnAssign) -> bool:
    """Tell whether a field has no default, and none in its ``Field(…)`` or ``Annotated[…, Field(…)]``."""
    maker = isinstance(node.value, ast.Call) and decorator_name(node.value).rpartition(".")[2]
    if node.value is not None and maker not in _FIELD_MAKERS:
        return False
    calls = [n for n in every(node.value or node.annotation) if isinstance(n, ast.Call)]
    if any(keyword.arg in _DEFAULTS for call in calls for keyword in call.keywords):
        return False
    return all(ast.unparse(first) == "..." for first in getattr(node.value, "args", [])[:1])
