"""The files of a tree, held against the list that its distribution brings. Reads only."""

import os
from typing import NamedTuple

from vllm_mods.base.tree import Tree
from vllm_mods.formats import tree_names
from vllm_mods.trees.packages import dist_infos, is_ours, rows_of

_HASHED = 8 << 20
"""Bytes up to which a file is hashed; of vLLM's larger ones, its extensions, the size is compared."""
_LEFT = (".py", ".orig", ".rej", ".bak")
_SOURCES = "vllm.egg-info/SOURCES.txt"


class Listed(NamedTuple):
    """The files of ``vllm/`` that a RECORD, or an sdist's SOURCES.txt, says there are."""

    name: str
    rows: dict[str, tuple[str, str]]


class Compared(NamedTuple):
    """What is not as listed: paths, each sorted. ``links`` are symbolic links."""

    differs: list[str]
    gone: list[str]
    links: list[str]
    extra: list[str]


def listed(tree: Tree) -> Listed | None:
    """Return the list of a tree's files; None where there is none, or more than one."""
    lists = [Listed(folder, rows) for folder in dist_infos(tree) if (rows := rows_of(tree, folder))]
    if not lists:
        sources = (tree.read(_SOURCES) or b"").decode("utf-8", "surrogateescape").splitlines()
        rows = {path: ("", "") for path in sources if is_ours(path)}
        return Listed(_SOURCES, rows) if rows else None
    return lists[0] if len(lists) == 1 else None


def compare(tree: Tree, listed: Listed) -> Compared:
    """Hold the files of a tree against a list. Raises ``TreeError`` for what may not be read."""
    paths = set(tree.paths())
    files = Compared([], [], [], [])
    for path, (hashed, size) in sorted(listed.rows.items()):
        if path in paths:
            files.differs.extend([] if _agrees(tree, path, hashed, size) else [path])
        elif tree.root is not None and os.path.islink(f"{tree.root}/{path}"):
            files.links.append(path)
        else:
            files.gone.append(path)
    if listed.name != _SOURCES:
        files.extra.extend(sorted(one for one in paths - listed.rows.keys() if one.endswith(_LEFT)))
    return files


def _agrees(tree: Tree, path: str, hashed: str, size: str) -> bool:
    """Tell whether a file is as its row says. What lies in an archive has a checksum of its own."""
    if tree.root is None or not hashed:
        return True
    length = os.stat(f"{tree.root}/{path}").st_size
    if length > _HASHED:
        return size in {"", str(length)}
    return tree_names.hash_agrees(hashed, tree.read(path) or b"") is not False
