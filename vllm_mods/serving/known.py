"""What a tree takes on its command line, each part read when it is asked for and kept."""

from __future__ import annotations

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
