"""Names that a file uses and nothing defines, by Python's own symbol tables."""

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.fit.shapes import Import, Value, words
from vllm_mods.fit.signatures import DefNode, ScopeNode, tests_typing
from vllm_mods.fit.world import World

_GIVEN = frozenset(dir(builtins)) | words(
    "__file__ __path__ __builtins__ __annotations__ __module__ __qualname__ __class__ __cached__ "
    "__conditional_annotations__ __classdict__ WindowsError"
)

# How Python's tables call scopes without a name; a later Python puts most of them in ``<>``.
_ANONYMOUS = words("lambda listcomp genexpr setcomp dictcomp")


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
    typing = {
        name
        for name, bindings in module.names.items()
        if all(isinstance(b, Import | Value) and b.typing_only for b in bindings)
    }
    missing = dict.fromkeys(_used(table, "", (_defined(table) | _GIVEN) - typing))
    loads = _loads(tree) if missing else {}
    for scope, name in missing:
        # Where nothing reads it at run time, nothing is wrong.
        line = loads.get((scope, name))
        if line is None:
            continue
        if name not in typing and (module.stars or module.dynamic):
            answer = world.lookup(path, name)
            if answer.exists is not False:
                if answer.exists is None:
                    yield Doubt(path=path, what="name", why=answer.why)
                continue
        late = "is imported for type checkers only, but used at run time"
        why = late if name in typing else "is not defined"
        message, key = f"the name {name} {why}", (scope, name, why)
        yield Problem(FindingCode.FIT_UNDEFINED_NAME, path, line, scope, message, key, token=name)


def _defined(table: symtable.SymbolTable) -> frozenset[str]:
    """Return the names that the module, or a ``global`` statement in it, binds."""
    names = set()
    for symbol in table.get_symbols():
        bound = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
        at_module = table.get_type() == "module"
        if bound and (at_module or symbol.is_declared_global()):
            names.add(symbol.get_name())
    for child in table.get_children():
        names |= _defined(child)
    return frozenset(names)


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
        anonymous = not named or child.get_name() in _ANONYMOUS
        inner = scope if anonymous else f"{scope}.{child.get_name()}".lstrip(".")
        yield from _used(child, inner, defined)


def _loads(tree: ast.Module) -> dict[tuple[str, str], int]:
    """Return the first line of a scope, named by its dotted chain, that reads a name at run time."""
    future = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
    loads: dict[tuple[str, str], int] = {}
    # A node, its scope, and whether annotations are evaluated there: those of local variables never are.
    stack: list[tuple[ast.AST, str, bool]] = [(tree, "", not future)]
    while stack:
        node, scope, evaluated = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del):
            loads[scope, node.id] = min(node.lineno, loads.get((scope, node.id), node.lineno))
            continue
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If) and tests_typing(node):
            children = [*node.orelse]
        elif isinstance(node, ScopeNode):
            inner, is_class = f"{scope}.{node.name}".lstrip("."), isinstance(node, ast.ClassDef)
            stack.extend((child, inner, is_class and not future) for child in node.body)
            children = [child for child in children if child not in node.body]
            if future and isinstance(node, DefNode):
                children = [*node.decorator_list, *node.args.defaults]
                children += filter(None, node.args.kw_defaults)
        elif isinstance(node, ast.AnnAssign) and not evaluated:
            children = [child for child in children if child is not node.annotation]
        stack.extend((child, scope, evaluated) for child in children)
    return loads
