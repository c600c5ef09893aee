"""Function signatures and type names, read from syntax nodes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vllm_mods.fit.shapes import Function, Kind, Parameter
from vllm_mods.formats import syntax_tree

DefNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = DefNode | ast.ClassDef
_CONTEXTS = (ast.Load, ast.Store, ast.Del)
_OPTIONAL = {"Optional", "Final", "Annotated", "Required", "NotRequired"}
_CLASSES = {"type", "Type"}
_UNTYPED = {"Any", "object", "None", "Callable", "Union"} | _CLASSES


def every(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, in no particular order.

    Several times as fast as ``ast.walk``, which is most of the time of a summary: names and
    constants have nothing below them, and ``Load`` is of no interest.
    """
    stack = [node]
    pop, push = stack.pop, stack.append
    while stack:
        node = pop()
        yield node
        kind = node.__class__
        if kind is ast.Name or kind is ast.Constant:
            continue
        for value in node.__dict__.values():
            if value.__class__ is list:
                stack += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and value.__class__ not in _CONTEXTS:
                push(value)


def dotted(node: ast.AST | None) -> str | None:
    """Return ``a.b.c`` for such an expression, ``None`` for any other.

    A call of a plain name keeps its parentheses: ``globals().update``.
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        value = node.value
        if isinstance(value, ast.Call) and not value.args and isinstance(value.func, ast.Name):
            return f"{value.func.id}().{node.attr}"
        head = dotted(value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def call_text(node: ast.Call) -> str:
    """Return what is called as the code writes it."""
    return dotted(node.func) or ast.unparse(node.func)[:60]


def type_name(node: ast.expr | None) -> str | None:
    """Return the dotted name of the one class that an annotation names, ``None`` otherwise.

    ``X | None``, ``Optional[X]`` and ``"X"`` are ``X``; ``type[X]`` stays as it is; a union of two
    classes, a container or a type variable in brackets is nothing that a call could be judged by.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return type_name(syntax_tree.parse(node.value.strip(), mode="eval").body)
        except (SyntaxError, ValueError):
            return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [side for side in (node.left, node.right) if not is_none(side)]
        return type_name(sides[0]) if len(sides) == 1 else None
    if isinstance(node, ast.Subscript):
        head = (dotted(node.value) or "").rpartition(".")[2]
        if head not in _OPTIONAL | _CLASSES:
            return None
        inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
        of = type_name(inner)
        return of if head in _OPTIONAL or of is None or "[" in of else f"type[{of}]"
    name = dotted(node)
    return None if name is None or name.rpartition(".")[2] in _UNTYPED else name


def is_none(node: ast.AST) -> bool:
    """Tell whether code writes ``None``."""
    return isinstance(node, ast.Constant) and node.value is None


def decorator_name(node: ast.expr) -> str:
    """Return the dotted name of a decorator, called or not; ``"?"`` if it has none."""
    return dotted(node.func if isinstance(node, ast.Call) else node) or "?"


def function_of(node: DefNode) -> Function:
    """Describe a function."""
    decorators = tuple(decorator_name(decorator) for decorator in node.decorator_list)
    abstract = any(name.rpartition(".")[2].startswith("abstract") for name in decorators)
    return Function(
        name=node.name,
        line=node.lineno,
        parameters=parameters_of(node.args),
        decorators=decorators,
        returns=type_name(node.returns),
        abstract=abstract or _only_raises(node.body),
        asynchronous=isinstance(node, ast.AsyncFunctionDef),
    )


def parameters_of(args: ast.arguments) -> tuple[Parameter, ...]:
    """Describe the parameters of a function or lambda."""
    positional = [*args.posonlyargs, *args.args]
    first, optional = len(args.posonlyargs), len(positional) - len(args.defaults)
    found = [
        _parameter(one, Kind.POSITIONAL_ONLY if n < first else Kind.STANDARD, required=n < optional)
        for n, one in enumerate(positional)
    ]
    if args.vararg is not None:
        found.append(Parameter(args.vararg.arg, Kind.STAR, required=False))
    for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(_parameter(one, Kind.KEYWORD_ONLY, required=default is None))
    if args.kwarg is not None:
        found.append(Parameter(args.kwarg.arg, Kind.DOUBLE_STAR, required=False))
    return tuple(found)


def _parameter(argument: ast.arg, kind: Kind, *, required: bool) -> Parameter:
    return Parameter(argument.arg, kind, required, type_name(argument.annotation))


def _only_raises(body: list[ast.stmt]) -> bool:
    """Tell whether a body is ``...``, ``pass`` or ``raise``, docstring aside."""
    rest = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return not rest or (len(rest) == 1 and isinstance(rest[0], ast.Raise | ast.Pass))
