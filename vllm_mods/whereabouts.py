"""Say where a class or function is now that it is not where a patch expects it."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Protocol

from vllm_mods.errors import TreeError

if TYPE_CHECKING:
    from vllm_mods.model import Tree

# Each read of a remote tree is a request of its own, and `check` may move a megabyte in all.
_REMOTE_LIMIT = 12


class Search(Protocol):
    """A search for a definition; see ``search``."""

    def __call__(self, tree: Tree, name: str, path: str) -> str:
        """Tell in words where ``name`` is."""
        ...


def search(tree: Tree, name: str, path: str) -> str:
    """Tell in words where ``name`` (dotted) is defined, in files other than ``path``.

    Looks in every Python file of a tree on disk, likeliest first, and in the
    likeliest ones only of a remote tree; says which of the two it was.
    """
    last = name.rsplit(".", 1)[-1]
    needle = re.compile(
        rb"^[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]+%s\b" % re.escape(last.encode()), re.MULTILINE
    )
    top = path.split("/", 1)[0]
    others = [other for other in tree.paths(top) if other.endswith(".py") and other != path]
    others.sort(key=lambda other: (-_likeness(other, path), other))
    looked = others[:_REMOTE_LIMIT] if tree.remote else others
    places = []
    for other in looked:
        try:
            data = tree.read(other) or b""
        except TreeError:
            continue  # a link or a special file, which no mod could touch either
        if last.encode() in data and (hit := needle.search(data)):
            line = data.count(b"\n", 0, hit.start()) + 1
            places.append(f"{other}:{line}")
            if len(places) == 3:
                break
    if places:
        return f"`{name}` is now in {', '.join(places)}"
    if len(looked) < len(others):
        return f"`{name}` is not in the {len(looked)} likeliest of {len(others)} files, which is all that was looked at in a remote tree"
    return f"`{name}` is nowhere in {top}/ ({len(others)} files)"


def _likeness(path: str, lost: str) -> float:
    """Rank a path by how much it looks like the one that is gone."""
    folders, file = posixpath.split(path)
    lost_folders, lost_file = posixpath.split(lost)
    stem, lost_stem = file.removesuffix(".py"), lost_file.removesuffix(".py")
    shared = len(posixpath.commonprefix([f"{folders}/".split("/"), f"{lost_folders}/".split("/")]))
    score = shared / (1 + abs(folders.count("/") - lost_folders.count("/")) / 4)
    if lost_stem in folders.split("/"):
        score += 4  # a module that became a package
    if stem == lost_stem:
        score += 5
    elif lost_stem in stem or stem in lost_stem:
        score += 1
    return score
