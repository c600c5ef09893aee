"""What is different between two trees."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree

_BUILT = ("vllm/_version.py", "vllm/commit_id.py")
_PASSED_OVER = ("__pycache__/", ".vllm-mods/", ".git/")


class TreeDifference(NamedTuple):
    """The changed files, and those that differ and are passed over, with the reason."""

    changes: tuple[FileChange, ...]
    passed_over: tuple[tuple[str, str], ...]


def difference(old: Tree, new: Tree) -> TreeDifference:
    """Compare the packages that both trees have. Raises ``TreeError`` for a file that can't be read.

    Bytecode, and what describes a distribution (``RECORD``), follows from the files and is left out.
    """
    changes: list[FileChange] = []
    passed: list[tuple[str, str]] = []
    for path in sorted({*_paths(old), *_paths(new)}):
        if path.endswith(".pyc") or any(f"/{part}" in f"/{path}" for part in _PASSED_OVER):
            continue
        before, after = old.read(path), new.read(path)
        if before == after:
            continue
        if ".dist-info/" in path or ".egg-info/" in path:
            passed.append((path, "it describes the distribution, and is kept true by itself"))
        elif path in _BUILT:
            passed.append((path, "the build writes it, for each release another"))
        else:
            changes.append(FileChange(path=path, before=before, after=after))
    return TreeDifference(tuple(changes), tuple(passed))


def _paths(tree: Tree) -> set[str]:
    try:
        return set(tree.paths(""))
    except TreeError:
        return set(tree.paths("vllm"))
