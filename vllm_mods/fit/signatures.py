"""Function signatures and type names, read from syntax nodes, and whether a call binds to a signature."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from inspect import Parameter, Signature
from typing import Any

from vllm_mods.fit.shapes import PROPERTIES, TRANSPARENT, Function, Import, words
from vllm_mods.formats import syntax_tree

DefNode = ast.FunctionDef | ast.AsyncFunctionDef
ScopeNode = DefNode | ast.ClassDef
_LEAVES = words("identifier int string constant expr_context operator cmpop boolop unaryop")
# The fields of each kind of node that hold nodes, as its grammar says: ``Call(expr func, expr* args, keyword* keywords)``.
_FIELD = re.compile(r"(\w+)[?*]* (\w+)")
_BELOW = {
    kind: tuple(name for of, name in _FIELD.findall(kind.__doc__ or "") if of not in _LEAVES)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes right below one, but for operators and contexts: ``ast.iter_child_nodes`` takes twice as long."""
    found: list[Any] = []  # of nodes, and of ``None`` for the key of ``**`` in a dictionary
    for name in _BELOW[node.__class__]:
        value = getattr(node, name)
        if value.__class__ is list:
            found += value
        elif value is not None:
            found.append(value)
    return [one for one in found if one is not None] if None in found else found


def every(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, in no particular order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += children(node)


def dotted(node: ast.AST | None) -> str | None:
    """Return ``a.b.c`` for such an expression, also ``globals().update`` with its parentheses, ``None`` for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        value = node.value
        if isinstance(value, ast.Call) and not value.args and isinstance(value.func, ast.Name):
            return f"{value.func.id}().{node.attr}"
        head = dotted(value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def tests_typing(node: ast.If) -> bool:
    """Tell whether the ``if`` is one that only type checkers enter."""
    return (dotted(node.test) or "").rpartition(".")[2] == "TYPE_CHECKING"


def statements(
    body: Iterable[ast.AST], *, typing_only: bool = False
) -> Iterator[tuple[ast.AST, bool]]:
    """Yield what a module or class runs, whatever ``if`` and ``try`` it stands in, with ``typing_only``."""
    for node in body:
        yield node, typing_only
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case ast.If():
                inside = typing_only or tests_typing(node)
                yield from statements(node.body, typing_only=inside)
                yield from statements(node.orelse, typing_only=typing_only)
            case _:
                for name in ("body", "handlers", "orelse", "finalbody", "cases"):
                    yield from statements(getattr(node, name, ()), typing_only=typing_only)


def imports_of(
    node: ast.Import | ast.ImportFrom, *, typing_only: bool = False
) -> Iterator[tuple[str, Import]]:
    """Yield each name that an import statement binds, ``*`` included."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            bound = alias.asname or alias.name.partition(".")[0]
            level, module, name = 0, alias.name, None
        else:
            bound = alias.asname or alias.name
            level, module, name = node.level, node.module or "", alias.name
        whole = name is None and alias.asname is None
        yield bound, Import(level, module, name, alias.lineno, whole, typing_only)


def bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST | Import]]:
    """Yield each name that code binds, or takes away, in its own scope, with the node or import that does; another scope's with its ``global``."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name, node
            return
        case ast.Lambda():
            return
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            # Only a walrus gets out of a comprehension.
            walruses = (inner for inner in every(node) if isinstance(inner, ast.NamedExpr))
            yield from ((walrus.target.id, walrus) for walrus in walruses)
            return
        case ast.Import() | ast.ImportFrom():
            yield from imports_of(node)
        case ast.Global() | ast.Nonlocal():
            yield from ((name, node) for name in node.names)
        case (
            ast.Name(id=name, ctx=ast.Store() | ast.Del())
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
        ):
            yield name, node
        case _:
            pass
    for child in children(node):
        yield from bindings(child)


def table_of(node: ast.AST | None) -> tuple[str, tuple[str, ...]]:
    """Return the name that a statement binds to a dictionary it writes whole, and the keys; empty texts for any other."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys))
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys))
        ):
            texts = [key.value for key in keys if isinstance(key, ast.Constant)]
            return name, tuple(map(str, texts)) if len(texts) == len(keys) else ()
        case _:
            return "", ()


def is_name(node: ast.expr, name: str) -> bool:
    """Tell whether an expression is this plain name."""
    return isinstance(node, ast.Name) and node.id == name


def call_text(node: ast.Call) -> str:
    """Return what is called as the code writes it."""
    return dotted(node.func) or ast.unparse(node.func)[:60]


def decorator_name(node: ast.expr) -> str:
    """Return the dotted name of a decorator, called or not; ``"?"`` if it has none."""
    return dotted(node.func if isinstance(node, ast.Call) else node) or "?"


def function_of(node: DefNode) -> Function:
    """Describe a function."""
    return Function(
        name=node.name,
        line=node.lineno,
        parameters=parameters_of(node.args),
        decorators=tuple(map(decorator_name, node.decorator_list)),
        asynchronous=isinstance(node, ast.AsyncFunctionDef),
        returns=_stated(node.returns),
    )


def _stated(node: ast.expr | None) -> str | None:
    """Return a stated type that is a name, and of a tuple how many it holds."""
    if not isinstance(node, ast.Subscript) or dotted(node.value) != "tuple":
        return dotted(node)
    held = getattr(node.slice, "elts", [node.slice])
    return f"tuple[{', '.join('...' if isinstance(one, ast.Constant) else '_' for one in held)}]"


def parameters_of(args: ast.arguments) -> tuple[Parameter, ...]:
    """Describe the parameters of a function or lambda."""
    placed, only = syntax_tree.with_defaults(args), len(args.posonlyargs)
    named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    listed = [
        *((*pair, Parameter.POSITIONAL_ONLY) for pair in placed[:only]),
        *((*pair, Parameter.POSITIONAL_OR_KEYWORD) for pair in placed[only:]),
        (args.vararg, None, Parameter.VAR_POSITIONAL),
        *((*pair, Parameter.KEYWORD_ONLY) for pair in named),
        (args.kwarg, None, Parameter.VAR_KEYWORD),
    ]
    return tuple(
        Parameter(arg.arg, kind, default=Parameter.empty if default is None else ...)
        for arg, default, kind in listed
        if arg is not None
    )


# --- calls


def refusal(parameters: Sequence[Parameter], call: ast.Call) -> str | None:
    """Say why a call does not bind, in Python's words; ``None`` if it does or if it can't be told."""
    plain = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    if len(plain) != len(call.args):  # what has a star may give any of these
        may = [p.replace(default=...) for p in parameters if p.kind <= p.POSITIONAL_OR_KEYWORD]
        parameters = [*may, *parameters[len(may) :]]
    # unchecked: a file that Python refuses may have two of one name
    signature = Signature(parameters, __validate_parameters__=False)
    words = dict.fromkeys(word.arg for word in call.keywords)
    bind = signature.bind_partial if None in words else signature.bind
    try:
        bind(*plain, **{word: None for word in words if word is not None})
    except TypeError as error:
        return f"fails: {error}"
    return None


def receiver_of(node: DefNode) -> str | None:
    """Return the first parameter of a method, ``None`` for no method; where a decorator may make none of it, only by its usual name."""
    positional = [*node.args.posonlyargs, *node.args.args]
    names = {decorator_name(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    if not positional or "staticmethod" in names:
        return None
    name = positional[0].arg
    return name if name in {"self", "cls"} or names <= TRANSPARENT | PROPERTIES else None
