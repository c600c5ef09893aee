"""The distributions that a tree's metadata names: what they list, and how they are installed anew."""

from __future__ import annotations

import csv
import os

from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.tree import Tree
from vllm_mods.formats import tree_names
from vllm_mods.trees.index import parsed


def dist_infos(tree: Tree) -> dict[str, tuple[str, str]]:
    """Return name and version of the distributions that are vLLM's, or list its files, by folder."""
    return {
        folder: said
        for folder, said in tree_names.dist_infos(sorted(tree.folders())).items()
        if said[0].lower() == "vllm" or rows_of(tree, folder)
    }


def reinstalling(tree: Tree, version: str | None) -> str:
    """Return how to install a tree's vLLM anew: a command, or words where none is known.

    An index is named for a release that an installer took from one, and for nothing else: in place of
    a build of somebody's own (a local version, a development version, a source folder, a file, a
    distribution without metadata) it would put another.
    """
    if tree.spec.startswith("image:"):
        return "build the image again"
    dists = dist_infos(tree)
    if len(dists) == 1:
        ((folder, (name, stated)),) = dists.items()
        place = f"{tree.root}/{folder}" if tree.root is not None else ""
        by = (tree.read(f"{folder}/INSTALLER") or b"").decode("ascii", "replace").strip()
        if by in {"pip", "uv"} and not os.path.lexists(f"{place}/direct_url.json"):
            release = parsed(stated)
            if release and release.local is None and not release.is_devrelease:
                return f"pip install --force-reinstall --no-deps {name}=={stated}"
    named = f"vLLM {version}" if version else "this vLLM"
    return f"install the very build of {named} again, from where it came: an index has another one"


def rows_of(tree: Tree, folder: str) -> dict[str, tuple[str, str]]:
    """Return hash and size of what a RECORD lists; nothing of one that cannot be read."""
    try:
        text = (tree.read(f"{folder}/RECORD") or b"").decode("utf-8", "surrogateescape")
        rows = [row for row in csv.reader(text.splitlines()) if len(row) == 3]
    except (csv.Error, VllmModsError):
        return {}
    return {path: (hashed, size) for path, hashed, size in rows if is_ours(path)}


def is_ours(path: str) -> bool:
    """Tell whether a path is in ``vllm/``; bytecode is left out, since installers write that."""
    return path.startswith("vllm/") and not path.endswith(".pyc") and ".." not in path
