"""The files of an image that is mounted somewhere: no link in it leads out to this machine."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.images.model import DIR, FILE, LINK, OTHER, ImageEntry, with_ancestors

_KINDS = {stat.S_IFREG: FILE, stat.S_IFDIR: DIR, stat.S_IFLNK: LINK}


class MountedFiles:
    """What lies below ``root``, a folder of this machine."""

    def __init__(self, root: str, what: str) -> None:
        self._root = root
        self._what = what

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path."""
        folder = posixpath.dirname(path)
        if path and not self._is_folder(folder):
            return None
        return self._entry(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        entry = self.entry(path)
        if entry is None or entry.kind != FILE:
            return None
        try:
            descriptor = os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                return limits.bounded(file, limits.UNPACKED_FILE, path)
        except OSError as error:
            raise self._cannot(path, error) from error

    def paths(self, under: str) -> Iterator[ImageEntry]:
        """Return everything below a folder."""
        if not self._is_folder(under):
            return
        for folder, folders, files in os.walk(self._place(under), onerror=self._unread):
            for name in sorted((*folders, *files)):
                entry = self._entry(f"{folder}/{name}".removeprefix(f"{self._root}/"))
                if entry is not None:
                    yield entry

    def _is_folder(self, path: str) -> bool:
        return all(
            (entry := self._entry(folder)) and entry.kind == DIR for folder in with_ancestors(path)
        )

    def _entry(self, path: str) -> ImageEntry | None:
        place = self._place(path)
        try:
            info = os.lstat(place)
            kind = _KINDS.get(stat.S_IFMT(info.st_mode), OTHER)
            target = os.readlink(place) if kind == LINK else ""
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._cannot(path, error) from error
        return ImageEntry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(info.st_mode),
            uid=info.st_uid,
            gid=info.st_gid,
            mtime=int(info.st_mtime),
            target=target,
            size=info.st_size if kind == FILE else 0,
        )

    def _unread(self, error: OSError) -> None:
        raise self._cannot(os.path.relpath(error.filename, self._root), error) from error

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _cannot(self, path: str, error: OSError) -> TreeError:
        return TreeError(
            f"{self._what}: /{path}: {error.strerror}",
            hint="run the command as root or in `podman unshare`",
        )
