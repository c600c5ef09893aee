"""What a class body says of the class: methods, fields, and every attribute it can have."""

import ast
from itertools import pairwise

from vllm_mods.fit.shapes import Class, Function, words
from vllm_mods.fit.signatures import (
    DefNode,
    bindings,
    decorator_name,
    dotted,
    every,
    function_of,
    is_name,
    statements,
)

# Calls on an instance that name an attribute in their first argument.
_REGISTERING = words("register_buffer register_parameter add_module register_module __setattr__")
# Calls whose first argument is the instance and whose second names an attribute.
_NAMING = {"setattr", "object.__setattr__", "super().__setattr__"}
_FIELD_MAKERS = {"field", "Field", "PrivateAttr"}
_READS = words("copy get items keys values")
_DEFAULTS = {"default", "default_factory", "factory", None}


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
