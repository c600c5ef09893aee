"""A tree that notes what an answer says of it, and whether all of it could be read."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from vllm_mods.base.errors import TreeError
from vllm_mods.base.tree import Tree, TreeView

_Given = TypeVar("_Given")


class NotedTree(TreeView):
    """A tree over an opened one that is asked for a plan.

    ``packages`` are the other distributions that were asked for and are there, with their versions. ``failure`` is
    the first error of the tree: what was planned after one is good for nothing else.
    """

    identity: str | None

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.root = tree.root
        self.identity = tree.identity
        self.packages: dict[str, str] = {}
        self.failure: TreeError | None = None

    def _noted(self, ask: Callable[[], _Given]) -> _Given:
        try:
            return ask()
        except TreeError as error:
            self.failure = self.failure or error
            raise

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        return self._noted(lambda: self.below.read(path))

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths below a folder."""
        return self._noted(lambda: tuple(self.below.paths(under)))

    def load(self, paths: Collection[str]) -> None:
        """Have the files here."""
        self._noted(lambda: self.below.load(paths))

    def folders(self) -> Collection[str]:
        """Return the folders in the site root that the tree knows."""
        return self._noted(self.below.folders)

    def package(self, name: str) -> str | None:
        """Return the version of another distribution, and note it."""
        version = self._noted(lambda: self.below.package(name))
        if version:
            self.packages[name] = version
        return version

    @property
    def platform(self) -> str | None:
        """What the tree is built for."""
        return self._noted(lambda: self.below.platform)

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Ask whether these bytes were shipped."""
        return self._noted(lambda: self.below.is_released(path, data))
