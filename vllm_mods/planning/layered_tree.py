"""A tree with changes laid over it, in memory."""

from collections.abc import Collection, Iterable, Mapping

from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree, TreeView


class LayeredTree(TreeView):
    """A tree over another one; reads are remembered, so no file is read twice."""

    def __init__(self, tree: Tree, changes: Iterable[FileChange] = ()) -> None:
        super().__init__(tree)
        self._read: dict[str, bytes | None] = {}
        self._changed: dict[str, bytes | None] = {}
        self._modes: dict[str, int] = {}
        self.lay(changes)

    def lay(self, changes: Iterable[FileChange]) -> None:
        """Put changes on top."""
        for change in changes:
            self._changed[change.path] = change.after
            if change.mode is not None:
                self._modes[change.path] = change.mode

    def original(self, path: str) -> bytes | None:
        """Return the file as the tree below has it."""
        if path not in self._read:
            self._read[path] = self.below.read(path)
        return self._read[path]

    def read(self, path: str) -> bytes | None:
        """Return the file with all changes, None if there is none."""
        return self._changed[path] if path in self._changed else self.original(path)

    def mode(self, path: str) -> int | None:
        """Return the permission bits of a file with all changes, None where nothing says."""
        return self._modes.get(path, self.below.mode(path))

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths of all files below a folder, changes included."""
        for path in self.below.paths(under):
            if path not in self._changed:
                yield path
        for path, data in self._changed.items():
            if data is not None and path.startswith(f"{under}/"):
                yield path

    def load(self, paths: Collection[str]) -> None:
        """Have the files of the tree below here."""
        self.below.load(paths)

    def layers(self) -> tuple[Tree, Mapping[str, bytes | None]]:
        """Return the lowest tree, and what lies on it."""
        lowest, changed = self.below.layers()
        return lowest, {**changed, **self._changed}

    def changes(self) -> tuple[FileChange, ...]:
        """Return the net difference from the tree below, sorted by path."""
        net = []
        for path, after in sorted(self._changed.items()):
            before = self.original(path)
            mode = self._modes.get(path) if after is not None else None
            if before != after or mode is not None:
                net.append(FileChange(path=path, before=before, after=after, mode=mode))
        return tuple(net)
