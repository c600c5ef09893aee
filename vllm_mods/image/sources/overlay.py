"""The files of an image that docker's overlay2 driver keeps in folders which we may read.

That is root's privilege on the engine's own machine. Where it is given, nothing has to be made and
removed, and a file costs microseconds: an engine answers each request for one in 5 to 100 ms.
The rules by which layers cover each other are those of the kernel's overlayfs.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

from vllm_mods.errors import TreeError
from vllm_mods.image.base import DIR, FILE
from vllm_mods.image.sources import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.image.base import Entry

_OPAQUE, _REDIRECT = "trusted.overlay.opaque", "trusted.overlay.redirect"


def folders(told: dict[str, Any]) -> tuple[str, ...]:
    """Return the layers' folders, the topmost first, from ``docker inspect``; ``()`` if unusable."""
    driver = told.get("GraphDriver") or {}
    data = driver.get("Data") or {}
    if driver.get("Name") != "overlay2" or os.geteuid() != 0:
        return ()
    found = [str(data.get("UpperDir") or ""), *str(data.get("LowerDir") or "").split(":")]
    found = [folder for folder in found if folder]
    # Their names are random: where all of them exist, this is the engine's own machine.
    return tuple(found) if found and all(os.path.isdir(folder) for folder in found) else ()


class Files:
    """What the layers hold together."""

    def __init__(self, layers: tuple[str, ...], what: str) -> None:
        self._layers = {layer: mounted.Files(layer, what) for layer in layers}
        self._what = what
        self._alive: dict[str, tuple[str, ...]] = {"": layers}

    def entry(self, path: str) -> Entry | None:
        """Return what lies at a path."""
        found = self._find(path)
        return None if found is None else found[1]

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        found = self._find(path)
        if found is None or found[1].kind != FILE:
            return None
        return self._layers[found[0]].read(path)

    def paths(self, under: str) -> Iterator[Entry]:
        """Return everything below a folder."""
        pending = [under]
        while pending:
            folder = pending.pop()
            listed: set[str] = set()
            for layer in self._folder(folder):
                listed.update(os.listdir(f"{layer}/{folder}"))
            for name in sorted(listed):
                entry = self.entry(f"{folder}/{name}" if folder else name)
                if entry is not None:
                    yield entry
                    if entry.kind == DIR:
                        pending.append(entry.path)

    def _find(self, path: str) -> tuple[str, Entry] | None:
        """Return the topmost layer that has a path, and what it has there."""
        for layer in self._folder(path.rpartition("/")[0]):
            if _is_whiteout(f"{layer}/{path}"):
                return None
            entry = self._layers[layer].entry(path)
            if entry is not None:
                return layer, entry
        return None

    def _folder(self, path: str) -> tuple[str, ...]:
        """Return the layers whose folder at a path shows through, the topmost first."""
        if path not in self._alive:
            alive = []
            for layer in self._folder(path.rpartition("/")[0]):
                place = f"{layer}/{path}"
                try:
                    info = os.lstat(place)
                except FileNotFoundError:
                    continue
                if not stat.S_ISDIR(info.st_mode):
                    break  # A file or a whiteout: what lies below is covered.
                if _attribute(place, _REDIRECT):
                    raise TreeError(
                        f"{self._what}: /{path} of the layer {layer} was moved by a redirect",
                        hint="docker save -o FILE IMAGE, then archive:FILE",
                    )
                alive.append(layer)
                if _attribute(place, _OPAQUE) == b"y":
                    break
            self._alive[path] = tuple(alive)
        return self._alive[path]


def _is_whiteout(place: str) -> bool:
    try:
        info = os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def _attribute(place: str, name: str) -> bytes | None:
    try:
        return os.getxattr(place, name, follow_symlinks=False)
    except OSError:
        return None  # It has none, or its file system has none.
