"""The receipt in a tree of whatever kind, and the tree as it was before any mod. Reads only."""

from collections.abc import Iterable

from vllm_mods.base.errors import TreeError
from vllm_mods.base.tree import Tree, TreeView
from vllm_mods.formats import receipt, tree_names
from vllm_mods.trees.packages import reinstalling


def receipt_of(tree: Tree) -> receipt.Receipt | None:
    """Return what a tree of whatever kind says was applied to it, None if it says nothing."""
    raw = None if tree.remote else tree.read(receipt.RECEIPT)
    return None if raw is None else receipt.parse(raw, f"{tree.spec}: {receipt.RECEIPT}")


class Pristine(TreeView):
    """A tree over another one: as it was before any mod went in, by its receipt."""

    def __init__(self, tree: Tree, applied: receipt.Receipt) -> None:
        super().__init__(tree)
        self._files = {file.path: file for file in applied.files if file.kind != receipt.FOLDER}
        self._records: dict[str, bytes] = {}
        self.version = applied.vllm

    def read(self, path: str) -> bytes | None:
        """Return a file as it was. Raises ``TreeError`` if its original is missing or damaged."""
        known = self._files.get(path)
        if known is None:
            return self.below.read(path)
        if known.before is None:
            return None
        data = receipt.untouched(known, self.below.read)
        if data is None:
            saved = receipt.original(path)
            what = "missing" if self.below.read(saved) is None else "damaged"
            why = f"{self.spec}: {saved}, the original of {path}, is {what}"
            raise TreeError(why, hint=reinstalling(self.below, self.version))
        return data

    def mode(self, path: str) -> int | None:
        """Return the permission bits of a file as they were."""
        return self.below.mode(receipt.original(path) if path in self._files else path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths of all files below a folder, without those that mods brought."""
        for path in self.below.paths(under):
            if path not in self._files:
                yield path
        for path, file in self._files.items():
            inside = path.startswith(f"{under}/") or not under
            if inside and file.before is not None and file.kind == receipt.FILE:
                yield path

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Ask the RECORD as it was: the one in the tree states what the mods made of the files."""
        for owner, file in self._files.items():
            if file.kind == receipt.RECORD:
                if owner not in self._records:
                    self._records[owner] = self.read(owner) or b""
                recorded = tree_names.recorded_hash(self._records[owner], path)
                if recorded is not None:
                    return tree_names.hash_agrees(recorded, data)
        return self.below.is_released(path, data)


def pristine(tree: Tree, applied: receipt.Receipt | None) -> Tree:
    """Return ``tree`` as it was before any mod went in; the tree itself without a receipt."""
    return tree if applied is None or not applied.files else Pristine(tree, applied)
