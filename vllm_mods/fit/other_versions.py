"""Code of a patch that is for several versions of vLLM: what only the others come to is a note."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.lines import rows
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.run_time import RESTING
from vllm_mods.fit.search import files_mentioning
from vllm_mods.fit.shapes import words
from vllm_mods.fit.signatures import ScopeNode, dotted, every
from vllm_mods.fit.walk import asks_for_version
from vllm_mods.fit.world import World, module_stem, remembered
from vllm_mods.formats import syntax_tree

_ASKING = words("hasattr getattr find_spec")


# Where the changed files name something, whether in a branch, and whether in one of code that asks what there is.
_Mention = tuple[tuple[str, int], bool, bool]


def lessen(world: World, problem: Problem) -> Problem:
    """Return an error as a note where the patch itself asks first what there is."""
    in_patch = problem.path in world.files and problem.code in {*RESTING, FindingCode.FIT_STRING}
    if problem.level is Level.NOTE or not in_patch:
        return problem
    tree = syntax_tree.module(world.glance(problem.path) or b"") or ast.Module([], [])
    why = _of_scopes(world, problem, tree) or _of_module(world, problem, tree)
    message = f"{problem.message} ({why})"
    return problem._replace(level=Level.NOTE, message=message) if why else problem


def _of_scopes(world: World, problem: Problem, tree: ast.Module) -> str:
    """Say that only code that asks what there is mentions what a problem stands in."""
    for node in every(tree):
        if not isinstance(node, ScopeNode) or problem.line not in rows(node):
            continue
        own = {(problem.path, line) for line in rows(node)}
        used = _mentions(world).get(("use", node.name), ())
        is_asked = {guarded for place, _, guarded in used if place not in own} == {True}
        paths = (path for path, _ in files_mentioning(world, (node.name,)))
        if is_asked and all(path in world.files for path in paths):
            return f"{node.name} is used only after the code has checked that it exists"
    return ""


def _of_module(world: World, problem: Problem, tree: ast.Module) -> str:
    """Say that a name in a string decides which module it is, or that the code makes it."""
    mentions, stem = _mentions(world), module_stem(problem.path)
    makes = any(b"sys.modules" in (data or b"") for data in world.files.values())
    if problem.code is FindingCode.FIT_IMPORT and makes and ("text", problem.key[0]) in mentions:
        return "the code names this module in a string, and creates modules at run time"
    loaded = [chosen for _, chosen, _ in mentions.get(("text of module", stem), ())]
    is_there = problem.path.startswith("vllm/") and world.tree.read(problem.path) is not None
    if not loaded or is_there or ("import of module", stem) in mentions:
        return ""
    imports = (n for n in tree.body if isinstance(n, ast.ImportFrom) and problem.line in rows(n))
    is_relative = any(node.level > 0 for node in imports)
    return "the code decides at run time which file is loaded" if all(loaded) or is_relative else ""


@remembered
def _mentions(world: World) -> Mapping[tuple[str, str], list[_Mention]]:
    """Return the mentions by how a name stands there and the name; strings and imports also by the module's last name."""
    mentions: dict[tuple[str, str], list[_Mention]] = defaultdict(list)
    for path, data in world.files.items():
        tree = syntax_tree.module(data) if path.endswith(".py") and data else None
        branches = [n for n in every(tree) if isinstance(n, ast.If)] if tree else []
        asking = [n for n in branches if any(map(_asks, every(n.test)))]
        chosen, guarded = (
            {line for node in nodes for one in (*node.body, *node.orelse) for line in rows(one)}
            for nodes in (branches, asking)
        )
        for node in every(tree) if tree else ():
            line = getattr(node, "lineno", 0)
            mention = (path, line), line in chosen, line in guarded
            for how, name in _named(node):
                mentions[how, name].append(mention)
                if how != "use":
                    last = name.removesuffix(".py").rpartition(".")[2]
                    mentions[f"{how} of module", last].append(mention)
    return mentions


def _named(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield "use", name
        case ast.ImportFrom(names=names) | ast.Import(names=names):
            yield from (("import", alias.name) for alias in names)
            yield "import", getattr(node, "module", None) or ""
        case ast.Constant(value=str(text)):
            yield "text", text
        case _:
            pass


def _asks(node: ast.AST) -> bool:
    name = dotted(node.func) if isinstance(node, ast.Call) else None
    return asks_for_version(node) or (name or "").rpartition(".")[2] in _ASKING
