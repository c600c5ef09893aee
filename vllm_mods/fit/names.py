"""Names that a file uses and nothing defines, by Python's own symbol tables."""

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.fit.shapes import Import, Value, words
from vllm_mods.fit.walk import walk
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
    loads: dict[tuple[str, str], int] = {}
    for node, scope in walk(tree, frozenset(range(1, (tree.body[-1].end_lineno or 0) + 1))):
        match node:
            case ast.Name(id=name, ctx=ast.Load() | ast.Del()) if not scope.typing_only:
                loads[scope.name, name] = min(
                    node.lineno, loads.get((scope.name, name), node.lineno)
                )
            case _:
                pass
    return loads
