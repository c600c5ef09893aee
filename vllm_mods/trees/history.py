"""Where upstream's own commits took a file, or a class or function of it. Nothing is checked out."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import node
from vllm_mods.trees.git import Commit, Repository


class HistoryMove(NamedTuple):
    """The file that something is in by now, and the last commit that moved it."""

    path: str
    commit: Commit


class CommitHistory:
    """The commits along first parents from one commit of upstream to another."""

    def __init__(self, repository: Repository, since: str, until: str) -> None:
        """Take both commits."""
        self._repository = repository
        self._ends = since, until

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """The commits, the oldest first. Raises ``TreeError`` if git cannot walk them."""
        return self._repository.line(*self._ends)

    def file(self, path: str) -> HistoryMove | None:
        """Return what a file was renamed to, as git tells renames, as often as it was."""
        move = None
        for commit in self.commits:
            new = self._repository.renames(commit).get(path) if path in commit.paths else None
            if new is not None:
                path, move = new, HistoryMove(new, commit)
        return move

    def definition(self, path: str, name: str) -> HistoryMove | None:
        """Return the file into which the commit put a class or function that took it out of another.

        Followed as often as it was moved; None where it went nowhere, or to several files at once.
        """
        move = None
        for commit in self.commits:
            if path not in commit.paths or self._defined(commit, path, name) != (True, False):
                continue
            new = [
                other
                for other in commit.paths
                if other.endswith(".py") and self._defined(commit, other, name) == (False, True)
            ]
            if len(new) != 1:
                return None
            path, move = new[0], HistoryMove(new[0], commit)
        return move

    def _defined(self, commit: Commit, path: str, name: str) -> tuple[bool, bool]:
        """Tell whether a file defined a name at module level before a commit, and after it."""
        head = re.compile(
            rb"^(?:class|(?:async[ \t]+)?def)[ \t]+%b\b" % re.escape(name.encode()), re.MULTILINE
        )
        before = commit.parents[0] if commit.parents else None
        texts = [one and self._repository.read(one, path) for one in (before, commit.sha)]
        was, now = (bool(text) and head.search(text or b"") is not None for text in texts)
        return was, now


class Upstream:
    """A clone of upstream's repository, to be asked for the commits between two trees."""

    def __init__(self, folder: str) -> None:
        """Open it. Raises ``UsageError`` if there is none."""
        self.repository = Repository(folder)

    def between(self, base: Tree, target: Tree) -> CommitHistory:
        """Return the history from one tree to another. Raises ``UsageError`` where it has not both."""
        return CommitHistory(self.repository, self.commit(base), self.commit(target))

    def known(self, base: Tree, target: Tree) -> CommitHistory | None:
        """Return the history from one tree to another, None where the repository has not both."""
        try:
            return self.between(base, target)
        except UsageError:
            return None

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
