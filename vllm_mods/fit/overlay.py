"""A folder that shows a tree with some of its files replaced, for a program that reads files.

Real folders stand only on the way to replaced files; everything else is a symbolic link.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vllm_mods.base.tree import Tree

PYTHON = (".py", ".pyi")
"""How the names of files end that a type checker reads."""


class LaidOut:
    """The Python of trees that are no folders, written into temporary ones: that of the last two."""

    def __init__(self) -> None:
        self._folders: list[tuple[Tree, str]] = []
        weakref.finalize(self, _remove, self._folders)

    def folder(self, tree: Tree) -> str:
        """Return a folder with a tree's Python. Raises ``TreeError``."""
        if tree.root is not None:
            return tree.root
        for known, folder in self._folders:
            # the same release opened twice is two trees of one identity
            if known is tree or (tree.identity and known.identity == tree.identity):
                return folder
        folder = tempfile.mkdtemp(prefix="vllm-mods-tree-")
        try:
            for path in tree.paths("vllm"):
                if path.endswith(PYTHON):
                    _write(os.path.join(folder, path), tree.read(path))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folders.append((tree, folder))
        _remove(self._folders[:-2])
        del self._folders[:-2]
        return folder


def python_of(*layers: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """Return the Python of layers of files, each over those before it."""
    return {p: data for layer in layers for p, data in layer.items() if p.endswith(PYTHON)}


def _remove(folders: list[tuple[Tree, str]]) -> None:
    for _, folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def overlay(root: str, files: Mapping[str, bytes | None]) -> Iterator[str]:
    """Give a folder that shows ``vllm`` of a site root, and what else ``files`` are of, with these files instead."""
    # No `TemporaryDirectory`: before Python 3.11.8, where it may not remove a link, it changes the mode of
    # the file behind it.
    folder = tempfile.mkdtemp(prefix="vllm-mods-")
    try:
        tops: dict[str, _Below] = {"vllm": {}, **_by_name(files)}
        for name, below in tops.items():
            _lay(os.path.join(root, name), os.path.join(folder, name), below)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace(folder: str, files: Mapping[str, bytes | None]) -> None:
    """Replace some of the files that an overlay was made with, by others; ``None`` takes one away."""
    for path, data in files.items():
        place = Path(folder, path)
        place.unlink(missing_ok=True)
        _write(str(place), data)


_Below = Mapping[str, bytes | None]


def _by_name(files: _Below) -> dict[str, dict[str, bytes | None]]:
    """Group files by the first part of their paths; the rest of the path is empty for a file."""
    groups: dict[str, dict[str, bytes | None]] = {}
    for path, data in files.items():
        name, _, rest = path.partition("/")
        groups.setdefault(name, {})[rest] = data
    return groups


def _lay(source: str, target: str, files: _Below) -> None:
    if "" in files:
        _write(target, files[""])
        return
    if not files:
        if os.path.exists(source):
            os.symlink(os.path.abspath(source), target)
        return
    os.mkdir(target)
    below = _by_name(files)
    if os.path.isdir(source):
        with os.scandir(source) as entries:
            for entry in entries:
                if entry.name not in below and entry.name != "__pycache__":
                    os.symlink(os.path.abspath(entry.path), os.path.join(target, entry.name))
    for name, rest in below.items():
        _lay(os.path.join(source, name), os.path.join(target, name), rest)


def _write(path: str, data: bytes | None) -> None:
    if data is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
