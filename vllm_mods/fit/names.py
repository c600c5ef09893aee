"""Names that a file reads at run time and imports for type checkers only; those that nothing defines the type checker tells."""

import ast
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.lines import lines_with
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.shapes import Import, Value
from vllm_mods.fit.walk import local_names, walk
from vllm_mods.fit.world import World


def name_problems(world: World, path: str, tree: ast.Module) -> Iterator[Problem]:
    """Judge the names of a module that are bound for type checkers only, where each scope reads them first."""
    module = world.module(path)
    typing = {
        name
        for name, bindings in (module.names.items() if module else ())
        if all(isinstance(one, Import | Value) and one.typing_only for one in bindings)
    }
    for node, scope in walk(tree, lines_with(world.glance(path) or b"", typing)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in typing and not scope.typing_only:
                if any(name in local_names(one.node) for one in scope.around()):
                    continue
                why = f"the name {name} is imported for type checkers only, but used at run time"
                place, key = (path, node.lineno, scope.name), (path, scope.name, name)
                yield Problem(FindingCode.FIT_UNDEFINED_NAME, *place, why, key, token=name)
            case _:
                pass
