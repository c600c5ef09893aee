"""A tree with changes laid over it, in memory."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_mods.base.model import FileChange, Tree


class LayeredTree:
    """A ``Tree`` over another one; reads are remembered, so no file is read twice."""

    def __init__(self, tree: Tree, changes: Iterable[FileChange] = ()) -> None:
        self._tree = tree
        self._read: dict[str, bytes | None] = {}
        self._changed: dict[str, bytes | None] = {}
        self._modes: dict[str, int] = {}
        self.spec = tree.spec
        self.version = tree.version
        self.remote = tree.remote
        self.pristine = tree.pristine
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
            self._read[path] = self._tree.read(path)
        return self._read[path]

    def read(self, path: str) -> bytes | None:
        """Return the file with all changes, None if there is none."""
        return self._changed[path] if path in self._changed else self.original(path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths of all files below a folder, changes included."""
        for path in self._tree.paths(under):
            if path not in self._changed:
                yield path
        for path, data in self._changed.items():
            if data is not None and path.startswith(f"{under}/"):
                yield path

    def folders(self) -> Iterable[str]:
        """Return the names of the folders in the site root, none where the tree below does not know them."""
        return getattr(self._tree, "folders", tuple)()

    @property
    def platform(self) -> str | None:
        """What the tree below is built for, None where it does not say."""
        return getattr(self._tree, "platform", None)

    def package(self, name: str) -> str | None:
        """Return the version of another distribution, None where the tree below does not know it."""
        known = getattr(self._tree, "package", None)
        version: str | None = None if known is None else known(name)
        return version

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Ask the tree below whether these bytes are what was shipped."""
        return self._tree.is_released(path, data)

    def changes(self) -> tuple[FileChange, ...]:
        """Return the net difference from the tree below, sorted by path."""
        net = []
        for path, after in sorted(self._changed.items()):
            before = self.original(path)
            mode = self._modes.get(path) if after is not None else None
            if before != after or mode is not None:
                net.append(FileChange(path=path, before=before, after=after, mode=mode))
        return tuple(net)
