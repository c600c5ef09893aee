"""Names that a file uses and nothing defines, by Python's own symbol tables."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator

from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.fit.shapes import Import, Value
from vllm_mods.fit.summary import tests_typing
from vllm_mods.fit.world import World

_GIVEN = frozenset(dir(builtins)) | {
    "__file__",
    "__path__",
    "__builtins__",
    "__annotations__",
    "__module__",
    "__qualname__",
    "__class__",
    "__cached__",
    "__conditional_annotations__",
    "__classdict__",
    "WindowsError",
}


def name_problems(
    world: World, path: str, data: bytes, tree: ast.Module
) -> Iterator[Problem | Doubt]:
    """Judge every name of a file that has to be a global or a builtin."""
    module = world.module(path)
    if module is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # It takes bytes, with their encoding and byte order mark, whatever its stub says.
            table = symtable.symtable(data, path, "exec")  # type: ignore[arg-type]
        except SyntaxError:
            # What only the compiler refuses; for the patched file, that is reported already.
            return
    defined = _defined(table) | _GIVEN
    missing = dict.fromkeys(_used(table, "", defined))
    typing = {
        name
        for name, bindings in module.names.items()
        if all(isinstance(b, Import | Value) and b.typing_only for b in bindings)
    }
    missing.update(dict.fromkeys(_used(table, "", defined - typing) if typing else ()))
    if not missing:
        return
    loads = _loads(tree)
    for scope, name in missing:
        line = _line(loads, scope, name)
        if line is None:
            continue
        if name not in typing and (module.stars or module.dynamic):
            answer = world.lookup(path, name)
            if answer.exists is not False:
                if answer.exists is None:
                    yield Doubt(path=path, what="name", why=answer.why)
                continue
        why = (
            "is imported for type checkers only, and used at run time"
            if name in typing
            else "is not defined"
        )
        yield Problem(
            code="fit-undefined-name",
            key=("fit-undefined-name", scope, name, why),
            token=name,
            path=path,
            line=line,
            scope=scope,
            message=f"the name {name} {why}",
        )


def _defined(table: symtable.SymbolTable) -> frozenset[str]:
    """Return the names that the module, or a ``global`` statement in it, binds."""
    found = set()
    for symbol in table.get_symbols():
        bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
        at_module = table.get_type() == "module"
        if bound and (at_module or symbol.is_declared_global()):
            found.add(symbol.get_name())
    for child in table.get_children():
        found |= _defined(child)
    return frozenset(found)


def _used(
    table: symtable.SymbolTable, scope: str, defined: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yield (scope, name) for every global that is used and not defined."""
    at_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        name = symbol.get_name()
        if name in defined or not symbol.is_referenced():
            continue
        if at_module or symbol.is_global():
            yield scope, name
    for child in table.get_children():
        named = child.get_type() in {"function", "class"} and child.get_name().isidentifier()
        anonymous = not named or child.get_name() in {"listcomp", "genexpr", "setcomp", "dictcomp"}
        inner = scope if anonymous else f"{scope}.{child.get_name()}".lstrip(".")
        yield from _used(child, inner, defined)


def _loads(tree: ast.Module) -> dict[str, list[tuple[str, int]]]:
    """Return where each name is read at run time: (scope, line)."""
    future = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
    loads: dict[str, list[tuple[str, int]]] = {}
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del):
            loads.setdefault(node.id, []).append((scope, node.lineno))
            continue
        children: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If) and tests_typing(node):
            children = [*node.orelse]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{scope}.{node.name}".lstrip(".")
            stack.extend((child, inner) for child in node.body)
            children = [child for child in children if child not in node.body]
            if future and not isinstance(node, ast.ClassDef):
                children = [*node.decorator_list, *_defaults(node.args)]
        elif (isinstance(node, ast.AnnAssign) and future) or (
            isinstance(node, ast.AnnAssign) and not _evaluated(scope, tree)
        ):
            children = [child for child in children if child is not node.annotation]
        stack.extend((child, scope) for child in children)
    return loads


def _evaluated(scope: str, tree: ast.Module) -> bool:
    """Annotations of local variables are never evaluated; those of a module or class are."""
    node: ast.AST = tree
    for part in scope.split(".") if scope else ():
        node = next(
            (n for n in ast.walk(node) if getattr(n, "name", None) == part and n is not node), node
        )
    return isinstance(node, ast.Module | ast.ClassDef)


def _defaults(args: ast.arguments) -> list[ast.AST]:
    return [*args.defaults, *(default for default in args.kw_defaults if default is not None)]


def _line(loads: dict[str, list[tuple[str, int]]], scope: str, name: str) -> int | None:
    """Return the first line that reads a name in a scope, ``None`` if none does at run time."""
    lines = [line for where, line in loads.get(name, ()) if where == scope]
    return min(lines) if lines else None
