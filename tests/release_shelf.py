"""Releases in memory, and a matrix's workshop that has these and no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from memory_tree import MemoryTree

from vllm_mods.grid.work import Setting, Workshop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.base.model import Mod


class ReleaseInMemory(MemoryTree):
    """A release in memory that knows what is installed beside it."""

    def folders(self) -> list[str]:
        return sorted({path.split("/")[0] for path in self.files if ".dist-info/" in path})


class Shelf(Workshop):
    """A workshop whose releases lie in memory."""

    def __init__(
        self, mods: Sequence[Mod], trees: Sequence[MemoryTree], cache: str, *, store: bool
    ) -> None:
        super().__init__(Setting(tuple(mods), cache, offline=True, store=store))
        by_version = {tree.version: tree for tree in trees}
        named = [SimpleNamespace(version=version, yanked=None) for version in by_version]
        self.releases: Any = SimpleNamespace(files=lambda: named, open=by_version.__getitem__)

    def open(self, spec: str) -> Any:
        return self.releases.open(spec.removeprefix("memory:"))
