"""Releases in memory, and a matrix's workshop that has these and no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from memory_tree import MemoryTree

from vllm_mods.matrices.work import Setting, Workshop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.base.model import Mod


@dataclass
class ReleaseInMemory(MemoryTree):
    """A release in memory that knows what is installed beside it, what it is built for, and by what it is known."""

    packages: dict[str, str] = field(default_factory=dict)
    platform: str | None = None
    identity: str | None = None

    def package(self, name: str) -> str | None:
        return self.packages.get(name)

    def folders(self) -> list[str]:
        return sorted({path.split("/")[0] for path in self.files if ".dist-info/" in path})


class Shelf(Workshop):
    """A workshop whose releases lie in memory."""

    def __init__(
        self,
        mods: Sequence[Mod],
        trees: Sequence[MemoryTree],
        cache: str,
        *,
        store: bool,
        **more: Any,
    ) -> None:
        super().__init__(Setting(tuple(mods), cache, offline=True, store=store, **more))
        by_version = {tree.version: tree for tree in trees}
        named = [SimpleNamespace(version=version, yanked=None) for version in by_version]
        none = SimpleNamespace(files=tuple)
        self.releases: Any = SimpleNamespace(
            files=lambda: named,
            versions=lambda: set(by_version),
            open=by_version.__getitem__,
            of=lambda _name: none,
        )

    def open(self, spec: str) -> Any:
        return self.releases.open(spec.removeprefix("memory:"))
