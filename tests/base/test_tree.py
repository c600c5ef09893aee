"""What a tree says that knows nothing, and what a view says of the tree below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from release_shelf import ReleaseInMemory

from vllm_mods.base.tree import PristineTree, Tree, TreeView

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES = {"vllm/a.py": b"a", "k.dist-info/RECORD": b""}


class Own(Tree):
    """A tree of somebody's own, with what it has to have."""

    spec = "own"
    closed = 0

    def read(self, path: str) -> bytes | None:
        return FILES.get(path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        return [path for path in FILES if path.startswith(under)]

    def close(self) -> None:
        self.closed += 1


def test_a_tree_of_ones_own_knows_nothing_that_it_does_not_say() -> None:
    with Own() as tree:
        assert (tree.version, tree.identity, tree.platform) == (None, None, None)
        assert (tree.package("k"), tree.owner("k/a.py")) == (None, None)
        assert (tree.is_released("vllm/a.py", b"a"), [*tree.folders()]) == (None, [])
        assert tree.apart() is tree
        assert tree.layers() == (tree, {})
        assert tree.closed == 0
    assert tree.closed == 1


class Pristine(PristineTree, Own):
    """The same, with files as they were released."""


def test_a_pristine_tree_tells_by_itself_what_was_released() -> None:
    tree = Pristine()
    answers = [tree.is_released("vllm/a.py", data) for data in (b"a", b"b")]
    assert [*answers, tree.is_released("vllm/b.py", b"a")] == [True, False, None]


@dataclass
class Owned(ReleaseInMemory):
    """A release that knows whose a path is."""

    def owner(self, path: str) -> tuple[str, str] | None:
        return ("k", "1.0") if path.startswith("k/") else None


class View(TreeView):
    """A view with the same files."""

    def read(self, path: str) -> bytes | None:
        return self.below.read(path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        return self.below.paths(under)


def test_a_view_says_what_the_tree_below_says() -> None:
    below = Owned(
        FILES,
        packages={"k": "1.0"},
        platform="linux/arm64",
        remote=True,
        pristine=True,
        released={"vllm/a.py": b"a"},
    )
    view = View(below)
    assert (view.spec, view.version, view.remote, view.pristine) == ("memory", "0.19.1", True, True)
    assert (view.is_released("vllm/a.py", b"a"), [*view.folders()]) == (True, ["k.dist-info"])
    assert (view.platform, view.package("k")) == ("linux/arm64", "1.0")
    assert view.owner("k/a.py") == ("k", "1.0")
