"""What any vLLM source tree can be asked; no I/O here. Paths are as in ``base.model``."""

import os
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Protocol, Self

Folder = str | os.PathLike[str]


class Tree(Protocol):
    """A vLLM source tree to read: an installed folder, an archive, a release, a revision, an image.

    A class of your own that inherits from it needs ``spec`` and ``read``, and ``paths`` for what is searched;
    everything else has a default, which stands for "this tree does not know". A tree is a context manager:
    who opens one closes it, since it may hold a connection, a container or a mount.

    ``spec`` is the tree as the user named it. A ``remote`` tree may cost a round trip for each read. The files of a
    ``pristine`` one are known to be as released: those of an archive or a revision are, those of a folder, which
    anybody may have edited, are not. ``root`` is the folder on this machine that it is, ``workspace`` the absolute
    folder outside of it that may be read by absolute path. ``releases`` opens other releases from where it came,
    ``verified`` says how much of a release was held to its hash: ``whole``, ``parts`` or nothing (None).

    >>> with vm.open_tree("site-packages") as tree:
    ...     tree.pristine, "vllm/loader.py" in tree.paths("vllm"), tree.read("vllm/none.py")
    (False, True, None)
    """

    spec: str
    remote: bool = False
    pristine: bool = False
    root: str | None = None
    workspace: str | None = None
    verified: str | None = None
    releases: "TreeSource | None" = None

    @cached_property
    def version(self) -> str | None:
        """What the tree says of itself; None where it says nothing."""
        return None

    @cached_property
    def identity(self) -> str | None:
        """What names its content for good; None where nothing does."""
        return None

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, ``None`` if there is none.

        Raises ``TreeError`` if the path escapes the root or the file cannot be read.
        """

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths of all files below the folder ``under``, in no particular order."""

    def is_released(self, path: str, data: bytes) -> bool | None:  # noqa: ARG002
        """Tell whether ``data`` is what the distribution shipped at ``path``.

        ``None`` where nothing in the tree can tell (no RECORD).
        """
        return None

    def mode(self, path: str) -> int | None:  # noqa: ARG002
        """Return the permission bits of a file, None where nothing says."""
        return None

    def folders(self) -> Collection[str]:
        """Return the names of the folders in the site root that are known without a search."""
        return ()

    @property
    def platform(self) -> str | None:
        """What it is built for, as ``linux/amd64``; None where nothing says."""
        return None

    def package(self, name: str) -> str | None:  # noqa: ARG002
        """Return the version of another distribution beside vLLM, None where that is not known."""
        return None

    def owner(self, path: str) -> tuple[str, str] | None:  # noqa: ARG002
        """Return name and version of the distribution that a path belongs to, None where that is not known."""
        return None

    def apart(self) -> "Tree":
        """Return the same tree, as if no other distribution had been asked for."""
        return self

    def load(self, paths: Collection[str]) -> None:  # noqa: ARG002
        """Have some files here that are read next, in few round trips. Raises ``TreeError``."""
        return

    def layers(self) -> "tuple[Tree, Mapping[str, bytes | None]]":
        """Return the tree that most of the files lie in, and those that differ from it, None for one that is gone."""
        return self, {}

    def close(self) -> None:
        """Give back what it holds: a container, a mount, a connection."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class PristineTree(Tree, Protocol):
    """A tree whose files are as released: those of an archive, of a commit."""

    pristine: bool = True

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Compare with the tree itself; ``None`` for a file that it does not have."""
        own = self.read(path)
        return None if own is None else own == data


class TreeSource(Protocol):
    """Where releases can be opened."""

    def versions(self) -> Collection[str]:
        """Return the versions that there are, without those that were yanked. Raises ``TreeError``."""

    def open(self, name: str) -> Tree:
        """Open a release by its version. Raises ``TreeError`` or ``UsageError``."""

    def whole(self, name: str) -> Tree:
        """Open a release so that all of its source is here. Raises as ``open`` does."""


class TreeView(Tree, Protocol):
    """A tree over another one with other files: ``below`` answers all else. Closing it closes nothing."""

    below: Tree
    version: str | None

    def __init__(self, below: Tree) -> None:
        self.below = below
        self.spec = below.spec
        self.version = below.version
        self.remote = below.remote
        self.pristine = below.pristine

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Ask the tree below."""
        return self.below.is_released(path, data)

    def folders(self) -> Collection[str]:
        """Ask the tree below."""
        return self.below.folders()

    @property
    def platform(self) -> str | None:
        """What the tree below is built for."""
        return self.below.platform

    def package(self, name: str) -> str | None:
        """Ask the tree below."""
        return self.below.package(name)

    def owner(self, path: str) -> tuple[str, str] | None:
        """Ask the tree below."""
        return self.below.owner(path)
