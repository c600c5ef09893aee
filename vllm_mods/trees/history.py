"""A clone of upstream's repository: which commit is which release. Nothing is checked out."""

from __future__ import annotations

from vllm_mods.base.errors import UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import node
from vllm_mods.trees.git import Repository


class Upstream:
    """A clone of upstream's repository, to be asked for the commits of trees."""

    def __init__(self, folder: str) -> None:
        """Open it. Raises ``UsageError`` if there is none."""
        self.repository = Repository(folder)

    def build(self) -> str | None:
        """Return the version of the newest commit, None if that is a release's.

        The newest commit is that of the remote's default branch, else HEAD. Raises
        ``UsageError`` where no tag says a version.
        """
        try:
            newest = self.repository.commit("refs/remotes/origin/HEAD")
        except UsageError:
            newest = self.repository.commit("HEAD")
        version = self.repository.tree(newest).version
        if version is None:
            raise UsageError(
                f"{self.repository.folder}: no tag leads to {newest[:12]}: nothing says what version it is",
                hint=f"git -C {self.repository.folder} fetch --tags --unshallow",
            )
        return version if node(version) is not None else None

    def commit(self, tree: Tree) -> str:
        """Return the commit of a tree: its own, that which its version names, or the release's tag.

        Raises ``UsageError`` if the repository has not got it.
        """
        if tree.commit is not None:
            return self.repository.commit(tree.commit)
        if tree.version is None:
            raise UsageError(
                f"{tree.spec} does not say its version: no commit of {self.repository.folder} is known to be it",
                hint="leave --history out, or name the tree as git:REPO@REV",
            )
        return self.release(tree.version)

    def release(self, version: str) -> str:
        """Return the commit that a version names, or that of the release's tag. Raises as ``commit`` does."""
        if "\0" in version:
            raise UsageError(f"{version!r} is no version", hint="name the tree as git:REPO@REV")
        return self.repository.commit(node(version) or f"refs/tags/v{version}")
