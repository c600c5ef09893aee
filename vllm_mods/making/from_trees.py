"""What is different between two trees."""

from __future__ import annotations

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree
from vllm_mods.making.compose import ModEffect

_BUILT = ("vllm/_version.py", "vllm/commit_id.py")
_PASSED_OVER = ("__pycache__/", ".vllm-mods/", ".git/")


def difference(old: Tree, new: Tree) -> ModEffect:
    """Compare the packages that both trees have; what differs and is left out is noted, with the reason.

    Bytecode, and what describes a distribution (``RECORD``), follows from the files and is left out.
    Raises ``TreeError`` for a file that can't be read.
    """
    changes: list[FileChange] = []
    notes: list[str] = []
    for path in sorted({*_paths(old), *_paths(new)}):
        if path.endswith(".pyc") or any(f"/{part}" in f"/{path}" for part in _PASSED_OVER):
            continue
        before, after = old.read(path), new.read(path)
        if before == after:
            continue
        if ".dist-info/" in path or ".egg-info/" in path:
            why = "it describes the distribution, and is kept true by itself"
            notes.append(f"left out {path}: {why}")
        elif path in _BUILT:
            notes.append(f"left out {path}: the build writes it, for each release another")
        else:
            changes.append(FileChange(path=path, before=before, after=after))
    return ModEffect(tuple(changes), notes=tuple(notes))


def _paths(tree: Tree) -> set[str]:
    try:
        return set(tree.paths(""))
    except TreeError:
        return set(tree.paths("vllm"))
