"""The folders of a tree, held open while files in them change.

Between looking at a path and writing there, another process can put a symbolic link in place of one of
its folders. A folder that is open is the same whatever becomes of its name: paths are made through
``/proc/self/fd`` (proc(5)), and each folder is opened in the one above it, links not followed.
"""

import errno
import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from vllm_mods.site import site

_OPEN = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_PROC = "/proc/self/fd"
_SPARE = 64
"""How many descriptors are left for files, and for what else the process does."""


class OpenFolders:
    """A site whose folders are opened when they are first needed; ``root`` is its real path.

    ``root_descriptor`` is the site root, opened by the caller. Where ``/proc`` is not mounted, paths are what they are.
    """

    def __init__(self, where: site.Site, root_descriptor: int) -> None:
        self.site = where
        self.root = where.root
        self._folders = {where.root: root_descriptor}
        self._proc = os.path.isdir(_PROC)
        self._limit: tuple[int, int] | None = None

    def allow(self, paths: Iterable[str]) -> None:
        """Have all folders of these paths of the site be open at a time, until ``close``.

        Raises ``OSError`` where more would have to be than this process may have.
        """
        if not self._proc:
            return
        folders: set[str] = set()
        for path in paths:
            place = self.site.absolute(path)
            folders |= {place, *site.parents(place)}
        needed = len(folders) + len(os.listdir(_PROC)) + _SPARE
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if resource.RLIM_INFINITY != hard < needed:
            what = f"{needed} file descriptors are needed, one per folder, but the limit is {hard}"
            raise OSError(errno.EMFILE, what, self.root)
        if resource.RLIM_INFINITY != soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            self._limit = (soft, hard)

    def at(self, place: str) -> str:
        """Return what to call a file, by its absolute path, so that it is in that very folder.

        Raises ``OSError`` for a folder that is none, or a symbolic link by now.
        """
        folder, name = os.path.split(place)
        return f"{_PROC}/{self._descriptor(folder)}/{name}" if self._proc else place

    def folder(self, place: str) -> str:
        """Return what to call a folder, by its absolute path."""
        return f"{_PROC}/{self._descriptor(place)}/." if self._proc else place

    def make_folder(self, place: str, *, owner: tuple[int, int], mode: int = 0o755) -> None:
        """Make a folder, or bring one to exactly this mode and, where we may, this owner."""
        if site.status(self.at(place)) is None:
            os.mkdir(self.at(place), 0o700)
        site.settle_folder(self.folder(place), owner=owner, mode=mode)

    def remove_folder(self, place: str) -> None:
        """Remove an empty folder."""
        os.rmdir(self.at(place))
        descriptor = self._folders.pop(place, None)
        if descriptor is not None:
            os.close(descriptor)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Let errors name files by their real paths."""
        try:
            yield
        except OSError as error:
            if error.filename is not None:
                error.filename = self._real(error.filename)
            if error.filename2 is not None:
                error.filename2 = self._real(error.filename2)
            raise

    def close(self) -> None:
        """Close what was opened here."""
        self._folders.pop(self.root, None)  # the caller's
        for descriptor in self._folders.values():
            os.close(descriptor)
        self._folders.clear()
        if self._limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
            self._limit = None

    def _descriptor(self, place: str) -> int:
        known = self._folders.get(place)
        if known is None:
            known = self._folders[place] = self._open(place)
        return known

    def _open(self, place: str) -> int:
        above, name = os.path.split(place)
        if any(place.startswith(f"{base}/") for base in (self.root, *self.site.workspaces)):
            try:
                return os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=self._descriptor(above))
            except OSError as error:
                error.filename = place
                raise
        return os.open(place, _OPEN)  # a workspace: the user named it, and it may well be a link

    def _real(self, name: object) -> object:
        if isinstance(name, str) and name.startswith(f"{_PROC}/"):
            number, _, rest = name[len(_PROC) + 1 :].partition("/")
            for place, descriptor in self._folders.items():
                if str(descriptor) == number:
                    return place if rest == "." else f"{place}/{rest}"
        return name
