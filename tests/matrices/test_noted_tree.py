"""What an answer takes from the tree that was asked for it: packages, and the first error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree
from release_shelf import ReleaseInMemory

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.matrices.work import NotedTree

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

FILES = {"vllm/a.py": b"a", "vllm/b.py": b"b", "other/c.py": b"c"}


@dataclass
class Broken(MemoryTree):
    """Answers nothing at all."""

    def read(self, path: str) -> bytes | None:
        raise Unreachable(f"no {path}")

    def paths(self, under: str = "vllm") -> Iterator[str]:
        yield from super().paths(under)
        raise Unreachable("no more")

    def load(self, paths: Collection[str]) -> None:
        raise Unreachable(f"no {paths}")

    def folders(self) -> Collection[str]:
        raise Unreachable("no listing")

    def package(self, name: str) -> str | None:
        raise Unreachable(f"no {name}")

    @property
    def platform(self) -> str | None:
        raise Unreachable("no platform")

    def is_released(self, path: str, data: bytes) -> bool | None:
        raise Unreachable(f"no record of {path}: {len(data)} bytes")


def test_it_says_what_the_tree_says() -> None:
    tree = ReleaseInMemory(
        FILES,
        packages={"kernels": "1.0"},
        platform="linux/arm64",
        identity="1" * 64,
        released={"vllm/a.py": b"a"},
    )
    noted = NotedTree(tree)
    assert noted.read("vllm/a.py") == b"a"
    assert noted.read("vllm/gone.py") is None
    assert list(noted.paths()) == ["vllm/a.py", "vllm/b.py"]
    assert noted.is_released("vllm/a.py", b"b") is False
    assert (noted.platform, noted.version, noted.identity) == ("linux/arm64", "0.19.1", "1" * 64)
    assert noted.failure is None


def test_packages_that_were_asked_for_and_are_there_are_noted() -> None:
    noted = NotedTree(ReleaseInMemory(FILES, packages={"kernels": "1.0", "torch": "2.11.0"}))
    assert (noted.package("kernels"), noted.package("gone")) == ("1.0", None)
    assert noted.packages == {"kernels": "1.0"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree: tree.read("vllm/a.py"),
        lambda tree: tree.paths(),
        lambda tree: tree.load(["vllm/a.py"]),
        lambda tree: tree.folders(),
        lambda tree: tree.package("kernels"),
        lambda tree: tree.platform,
        lambda tree: tree.is_released("vllm/a.py", b"a"),
    ],
)
def test_the_first_error_is_noted(ask: Callable[[NotedTree], Any]) -> None:
    noted = NotedTree(Broken(FILES))
    with pytest.raises(TreeError):
        ask(noted)
    assert isinstance(noted.failure, Unreachable)
    first = noted.failure
    with pytest.raises(TreeError):
        ask(noted)
    assert noted.failure is first


def test_what_a_type_checker_reads_is_noted_too() -> None:
    lowest, _ = NotedTree(Broken(FILES)).layers()
    assert isinstance(lowest, NotedTree)
    with pytest.raises(TreeError):
        lowest.read("vllm/a.py")
    assert lowest.failure is not None


def test_a_folder_is_read_where_it_lies(tmp_path: Any) -> None:
    tree = MemoryTree(FILES)
    tree.root = str(tmp_path)
    assert NotedTree(tree).layers()[0].root == str(tmp_path)
