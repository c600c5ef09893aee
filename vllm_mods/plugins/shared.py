"""What an installed plugin replaces while it runs of code that somebody has changed in the files of vLLM."""

import ast
from collections.abc import Iterator, Mapping

from vllm_mods.base.tree import Tree
from vllm_mods.fit.replacements import owner_name
from vllm_mods.fit.run_time import all_writes
from vllm_mods.fit.world import SummaryCache
from vllm_mods.formats import syntax_tree
from vllm_mods.plugins.judging import View


def both_change(
    tree: Tree, package: str, originals: Mapping[str, bytes]
) -> Iterator[tuple[str, str]]:
    """Yield the names that a package replaces, and whose code differs from the ``originals`` of some files, each with its file."""
    paths = [path for path in (f"{package}.py", *tree.paths(package)) if path.endswith(".py")]
    files = {path: data for path in paths if (data := tree.read(path))}
    view = View(tree, files, SummaryCache())
    for write in all_writes(view.world):
        owner = view.owner(write) if write.name else None
        path = (owner.module or owner.path) if owner else ""
        if owner and path in originals:
            names = [*([] if owner.module else [owner_name(owner)]), write.name or ""]
            if _code(originals[path], names) != _code(tree.read(path) or b"", names):
                yield f"{owner_name(owner)}.{write.name}", path


def _code(data: bytes, names: list[str]) -> list[str]:
    nodes: list[ast.AST] = [syntax_tree.module(data) or ast.Module([], [])]
    for name in names:
        inside = (inner for node in nodes for inner in getattr(node, "body", ()))
        nodes = [node for node in inside if getattr(node, "name", "") == name]
    return [ast.dump(node) for node in nodes]
