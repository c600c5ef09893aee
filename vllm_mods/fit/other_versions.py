"""Code of a patch that is for several versions of vLLM: what only the others come to is a note."""

import ast
import re
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.problems import PLACED, Problem
from vllm_mods.fit.search import classes_named, files_mentioning
from vllm_mods.fit.shapes import words
from vllm_mods.fit.signatures import ScopeNode, dotted, every
from vllm_mods.fit.walk import asks_for_version
from vllm_mods.fit.world import World, module_stem
from vllm_mods.formats import syntax_tree

_ASKING = words("hasattr getattr find_spec")


def lessen(world: World, problem: Problem) -> Problem:
    """Return an error as a note where the patch itself asks first what there is."""
    if problem.level is Level.NOTE or problem.path not in world.files:
        return problem
    why = _asked_for(world, problem) or _chosen(world, problem)
    if not why:
        return problem
    return problem._replace(level=Level.NOTE, message=f"{problem.message} ({why})")


def _trees(world: World) -> Iterator[tuple[str, ast.Module]]:
    for path, data in world.files.items():
        if path.endswith(".py") and data and (tree := syntax_tree.module(data)):
            yield path, tree


def _asked_for(world: World, problem: Problem) -> str:
    """Say that the code asks whether a class has a field that each of it has here: it knows other forms of it."""
    match = PLACED.search(problem.message)
    if problem.code is not FindingCode.FIT_ATTRIBUTE or match is None:
        return ""
    fields = {f for one in classes_named(world, match[1]) if one.where in problem.message for f in one.cls.fields}  # fmt: skip
    for _, tree in _trees(world):
        for node in every(tree):
            match node:
                case ast.Call(
                    func=ast.Name(id="hasattr"), args=[_, ast.Constant(value=str(name))]
                ) if name in fields and _is_rare(world, name):
                    return f"the code asks whether {match[1]} has {name}, as for another version"
                case _:
                    pass
    return ""


def _is_rare(world: World, name: str) -> bool:
    stated = re.compile(rb"^[ \t]+%b\s*:" % name.encode(), re.MULTILINE)
    return sum(len(stated.findall(data)) for _, data in files_mentioning(world, (name,))) <= 3


def _chosen(world: World, problem: Problem) -> str:
    """Say that what the code is in is only used where other code asks for a version, or is loaded by a name in a string."""
    tree = syntax_tree.module(world.glance(problem.path) or b"") or ast.Module([], [])
    functions = {
        node.name: (problem.path, node.lineno, node.end_lineno or 0)
        for node in every(tree)
        if isinstance(node, ScopeNode) and node.lineno <= problem.line <= (node.end_lineno or 0)
    }
    for name, place in functions.items():
        used = list(_uses(world, name, place))
        others = (
            path for path, data in files_mentioning(world, (name,)) if path not in world.files
        )
        if used and all(used) and next(others, None) is None:
            return f"{name} is only used where the code asks what there is"
    named, loaded = _loads(world, module_stem(problem.path))
    if named or not loaded or problem.path in world.texts:
        return ""
    relative = any(
        isinstance(node, ast.ImportFrom)
        and node.level > 0
        and node.lineno <= problem.line <= (node.end_lineno or 0)
        for node in tree.body
    )
    return "which file is loaded, the code decides when it runs" if all(loaded) or relative else ""


def _uses(world: World, name: str, place: tuple[str, int, int]) -> Iterator[bool]:
    """Yield for each use of a name in the changed files, but in itself, whether it stands where the code asks what there is."""
    for path, tree in _trees(world):
        guarded = _lines(tree, asking=True)
        for node in every(tree):
            if getattr(node, "attr", getattr(node, "id", None)) == name:
                line = getattr(node, "lineno", 0)
                if path != place[0] or not place[1] <= line <= place[2]:
                    yield line in guarded


def _loads(world: World, stem: str) -> tuple[bool, list[bool]]:
    """Tell whether a changed file imports a module, and for each string that names it, whether a branch chooses it."""
    is_named, loaded = False, []
    for _, tree in _trees(world):
        branches = _lines(tree, asking=False)
        for node in every(tree):
            match node:
                case ast.ImportFrom(module=module, names=names):
                    imported = [module or "", *(one.name for one in names)]
                    is_named |= any(one.rpartition(".")[2] == stem for one in imported)
                case ast.Import(names=names):
                    is_named |= any(one.name.rpartition(".")[2] == stem for one in names)
                case ast.Constant(value=str(text)):
                    if text.removesuffix(".py").rpartition(".")[2] == stem:
                        loaded.append(node.lineno in branches)
                case _:
                    pass
    return is_named, loaded


def _lines(tree: ast.Module, *, asking: bool) -> set[int]:
    """Return the lines of branches: of those that ask what there is, or of all."""
    return {
        line
        for node in every(tree)
        if isinstance(node, ast.If)
        and (not asking or any(asks_for_version(n) or _asks(n) for n in every(node.test)))
        for one in (*node.body, *node.orelse)
        for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }


def _asks(node: ast.AST) -> bool:
    name = dotted(node.func) if isinstance(node, ast.Call) else None
    return (name or "").rpartition(".")[2] in _ASKING
