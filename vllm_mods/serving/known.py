"""What a tree takes on its command line, each part read when it is asked for and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vllm_mods.base.tree import Tree
from vllm_mods.serving import flags, shape
from vllm_mods.serving.flags import Flag
from vllm_mods.serving.shape import FlagShape
from vllm_mods.serving.source import ModuleSources


class KnownFlags:
    """The flags of a tree. Raises ``TreeError`` if the tree does not say them."""

    def __init__(self, tree: Tree) -> None:
        self.sources = ModuleSources(tree)
        self.flags = flags.read(self.sources)
        self._shapes: dict[int, FlagShape] = {}

    def shape(self, flag: Flag) -> FlagShape:
        """Return what a flag takes."""
        if id(flag) not in self._shapes:
            self._shapes[id(flag)] = shape.shape(self.sources, flag, self.flags.rules)
        return self._shapes[id(flag)]

    def names(self) -> frozenset[str]:
        """Return all flags by name, with what pairs of prefixes make of them."""
        return frozenset(self.flags.by_name).union(
            *map(self.flags.rules.inverted, self.flags.by_name)
        )


def names_among(tree: Tree, wanted: Iterable[str]) -> frozenset[str]:
    """Return the flags of a tree, or none without parsing it if it does not mention what is wanted.

    Raises ``TreeError`` as ``KnownFlags`` does.
    """
    files = [path for path in tree.paths(flags.FOLDER) if path.endswith(flags.FILE)]
    texts = [tree.read(path) or b"" for path in (*files, flags.ENGINE)]
    for name in wanted:
        stem = re.sub("^--(no-|enable-|disable-)?", "", name)
        forms = (stem.encode(), stem.replace("-", "_").encode())
        if any(form in text for text in texts for form in forms):
            return KnownFlags(tree).names()
    return frozenset()
