"""A tree's source laid out on disk as in an image, for commands that may do to it what they like; made as new between them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vllm_mods.base.errors import UsageError
from vllm_mods.base.tree import Tree


@contextlib.contextmanager
def copied(tree: Tree, also: Sequence[str]) -> Iterator[ScratchCopy]:
    """Give a scratch copy of a tree, with other packages of it. Raises ``UsageError`` for one that cannot be copied."""
    whole = _whole(tree)
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:
        yield ScratchCopy(tree, whole, scratch, also)


class ScratchCopy:
    """The source of a tree in ``site``, by ``paths``, and a folder ``scratch`` beside it."""

    def __init__(self, tree: Tree, whole: Tree, scratch: str, also: Sequence[str]) -> None:
        self.tree, self.whole, self.scratch = tree, whole, scratch
        self.site = os.path.join(scratch, "site")
        self._also = also
        self._lay_out()

    def _lay_out(self) -> None:
        """Copy the package, and others beside it, with what tells pip and Python the version."""
        tree = self.whole
        self.paths: set[str] = set()
        for package in ("vllm", *self._also):
            found = [path for path in tree.paths(package) if not path.endswith(".pyc")]
            if not found:
                raise UsageError(f"{tree.spec} has no package {package}", hint="--also PACKAGE")
            for path in found:
                if (data := tree.read(path)) is not None:
                    put(os.path.join(self.site, path), data)
                    self.paths.add(path)
        version = tree.version or "0"
        metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode()
        put(os.path.join(self.site, f"vllm-{version}.dist-info", "METADATA"), metadata)
        self._state = _state(self.site)

    def restore(self) -> None:
        """Make the copy as it was, whatever a command did to it."""
        with contextlib.suppress(OSError):  # it is laid out anew
            if self._mended():
                return
        shutil.rmtree(self.site, onerror=_open_up)
        self._lay_out()

    def _mended(self) -> bool:
        """Put back files that were written, and tell whether that was all."""
        now = _state(self.site)
        changed = [path for path, mark in self._state.items() if now.get(path) != mark]
        if any(path not in self.paths for path in changed):
            return False  # a folder, or what is no file of the tree
        for path in sorted(now.keys() - self._state.keys()):
            _remove(os.path.join(self.site, path))
        for path in changed:
            place = os.path.join(self.site, path)
            _remove(place)
            put(place, self.whole.read(path) or b"")
            self._state[path] = _mark(os.lstat(place))
        return True

    def is_as_it_was(self, path: str, info: os.stat_result) -> bool:
        """Tell whether nothing was written to a file of the copy."""
        return self._state.get(path) == _mark(info)


def _whole(tree: Tree) -> Tree:
    """Return a tree with all of its source here. Raises ``UsageError`` for one that is read in pieces."""
    if not tree.remote:
        return tree
    if tree.releases is not None:
        return tree.releases.whole(tree.spec.removeprefix("pypi:"))
    raise UsageError(
        f"{tree.spec} is read in pieces, and a command needs all of it",
        hint=f"pip download --no-deps vllm=={tree.version}, and --tree wheel:FILE",
    )


def put(place: str, data: bytes) -> None:
    """Write a file, and the folders around it."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    Path(place).write_bytes(data)


def walk(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below a folder but folders; bytecode and repositories are passed over."""
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        folders[:] = sorted(set(folders) - {"__pycache__", ".git", *links})
        for name in sorted([*names, *links]):
            if not name.endswith(".pyc"):
                path = os.path.join(parent, name)
                yield path, os.lstat(path)


def _state(site: str) -> dict[str, tuple[int, ...]]:
    """Return what tells of everything below a folder whether it is as it was, bytecode and folders included."""
    found = {}
    for parent, folders, names in os.walk(site):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            found[os.path.relpath(path, site)] = _mark(os.lstat(path))
    return found


def _mark(info: os.stat_result) -> tuple[int, ...]:
    """Return what changes with any write to a file; its time of change nobody can set."""
    if stat.S_ISDIR(info.st_mode):
        return (info.st_mode,)
    return info.st_mode, info.st_ino, info.st_size, info.st_ctime_ns


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, onerror=_open_up)
    elif os.path.lexists(path):
        os.unlink(path)


def _open_up(again: Callable[[str], object], path: str, _: object) -> None:
    """Give a folder its powers back that a command took from it, and remove what is in it."""
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
    again(path)
