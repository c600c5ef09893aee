"""Code of a patch that is for several versions of vLLM: what only the others come to is a note."""

import ast
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.run_time import RESTING
from vllm_mods.fit.search import class_named, files_mentioning, subclasses
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
    if problem.code not in {*RESTING, FindingCode.FIT_STRING}:
        return problem
    why = _chosen(world, problem)
    if not why:
        return problem
    return problem._replace(level=Level.NOTE, message=f"{problem.message} ({why})")


def _trees(world: World) -> Iterator[tuple[str, ast.Module]]:
    for path, data in world.files.items():
        if path.endswith(".py") and data and (tree := syntax_tree.module(data)):
            yield path, tree


def _chosen(world: World, problem: Problem) -> str:
    """Say that what the code is in is only used where other code asks for a version, or is loaded by a name in a string."""
    tree = syntax_tree.module(world.glance(problem.path) or b"") or ast.Module([], [])
    around = [n for n in every(tree) if isinstance(n, ScopeNode) and problem.line in _span(n)]
    for node in around:
        others = (path for path, _ in files_mentioning(world, (node.name,)))
        uses = list(_uses(world, node.name, (problem.path, _span(node))))
        outer = next((c for c in around if isinstance(c, ast.ClassDef) and node in c.body), None)
        if outer is not None and _is_replaced(world, problem.path, outer, node.name):
            if all(is_guarded for is_guarded, is_above in uses if is_above):
                return f"the classes below {outer.name} have another {node.name}"
        elif uses and all(one[0] for one in uses) and set(others) <= set(world.files):
            return f"{node.name} is only used where the code asks what there is"
    texts = [n.value for _, one in _trees(world) for n in every(one) if isinstance(n, ast.Constant)]
    makes = any(b"sys.modules" in (data or b"") for data in world.files.values())
    if problem.code is FindingCode.FIT_IMPORT and makes and problem.key[0] in texts:
        return "the code names this module in a string, and makes some"
    named, loaded = _loads(world, module_stem(problem.path))
    if named or not loaded or problem.path in world.texts:
        return ""
    imports = (n for n in tree.body if isinstance(n, ast.ImportFrom) and problem.line in _span(n))
    is_relative = any(node.level > 0 for node in imports)
    return (
        "which file is loaded, the code decides when it runs" if all(loaded) or is_relative else ""
    )


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _is_replaced(world: World, path: str, cls: ast.ClassDef, method: str) -> bool:
    """Tell whether a class is only a base, and every class below it has a method of its own."""
    bases, uses = 0, 0
    if any(other not in world.files for other, _ in files_mentioning(world, (cls.name,))):
        return False
    for _, tree in _trees(world):
        for node in every(tree):
            uses += getattr(node, "attr", getattr(node, "id", None)) == cls.name
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                bases += (dotted(base) or "").rpartition(".")[2] == cls.name
    symbol = class_named(world, path, cls.name, cls.lineno)
    below = subclasses(world, symbol) if symbol else ()
    return bool(below) and uses == bases and all(method in one.cls.methods for one in below)


def _uses(world: World, name: str, place: tuple[str, range]) -> Iterator[tuple[bool, bool]]:
    """Yield for each use of a name, but in itself, whether it stands where the code asks what there is, and whether on ``super``."""
    for path, tree in _trees(world):
        guarded = _lines(tree, asking=True)
        for node in every(tree):
            if getattr(node, "attr", getattr(node, "id", None)) == name:
                line, value = getattr(node, "lineno", 0), getattr(node, "value", None)
                if path != place[0] or line not in place[1]:
                    yield line in guarded, dotted(getattr(value, "func", None)) == "super"


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
        for line in _span(one)
    }


def _asks(node: ast.AST) -> bool:
    name = dotted(node.func) if isinstance(node, ast.Call) else None
    return (name or "").rpartition(".")[2] in _ASKING
