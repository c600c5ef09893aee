"""A tree that exists in memory only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_mods.base.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class MemoryTree(Tree):
    """A tree over a dict; ``reads`` counts what was asked for, per path."""

    files: dict[str, bytes]
    version: str | None = "0.19.1"
    spec: str = "memory"
    remote: bool = False
    pristine: bool = False
    released: dict[str, bytes] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        self.reads[path] = self.reads.get(path, 0) + 1
        return self.files.get(path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        return [path for path in self.files if path.startswith(f"{under}/")]

    def is_released(self, path: str, data: bytes) -> bool | None:
        return self.released[path] == data if path in self.released else None
