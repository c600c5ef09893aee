"""Fetched libraries in the cache, each under the hash of what the lock says of it.

Beside its files lie the list of their hashes, whose own hash the lock has, and of a git library the
objects by which its commit names these files: what the lock claims is proven without a network.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, Refused, TreeError
from vllm_mods.base.output import write_folder
from vllm_mods.formats.project import LibrarySource
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.library import catalog, checksums, reading
from vllm_mods.sharing import contents, git_objects

_LIST, _FILES, _OBJECTS = "list", "files", "objects"


class FetchedLibrary(NamedTuple):
    """A library as its source has it: the commit or version, its files, and the git objects that prove them."""

    resolved: str
    files: Mapping[str, bytes]
    objects: Mapping[str, bytes] = {}


class KeptLibrary(NamedTuple):
    """A library in the cache: the folder of its files, and the sha256 of each by its path."""

    folder: str
    listed: dict[str, str]


def lock(source: LibrarySource, fetched: FetchedLibrary) -> LockedLibrary:
    """Return what the lock says of a library. Raises ``TreeError`` for paths that no library has."""
    return LockedLibrary(source, fetched.resolved, sha256(_listing(fetched.files, str(source))))


def keep(locked: LockedLibrary, fetched: FetchedLibrary) -> None:
    """Put a library into the cache. Raises ``Refused`` where that cannot be."""
    place = _place(locked)
    was_there = os.path.lexists(place)
    if is_whole(locked):
        return
    inside = {_LIST: _listing(fetched.files, str(locked.source))}
    inside |= {f"{_FILES}/{path}": data for path, data in fetched.files.items()}
    inside |= {f"{_OBJECTS}/{name}": data for name, data in fetched.objects.items()}
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        if was_there:  # and damaged; what another run has put there since is not
            shutil.rmtree(place, ignore_errors=True)
        write_folder(place, inside)
    except OSError as error:
        if not is_whole(locked):  # else another run was quicker
            raise Refused(
                f"{place}: {error.strerror}: {locked.source} cannot be stored",
                hint=f"ls -ld {place}; df -h",
            ) from error


def open_kept(locked: LockedLibrary) -> KeptLibrary | None:
    """Return a library from the cache; None if a file is missing, or the files are not those of its commit.

    A file that was changed since is refused by whoever reads it.
    """
    place = _place(locked)
    data = _read(os.path.join(place, _LIST), place)
    if data is None or sha256(data) != locked.files:
        return None
    library = KeptLibrary(os.path.join(place, _FILES), checksums.parse(data, place))
    if not all(os.path.lexists(f"{library.folder}/{path}") for path in library.listed):
        return None
    if locked.source.kind == "git" and not _is_of_commit(locked, library, place):
        return None
    return library


def is_whole(locked: LockedLibrary) -> bool:
    """Return True if a library is kept, and each file of it is as it is listed."""
    library = open_kept(locked)
    return library is not None and not _damaged(library)


def _is_of_commit(locked: LockedLibrary, library: KeptLibrary, place: str) -> bool:
    """Return True if a commit has exactly the files of a library, by the objects that lie beside them."""

    def read_object(name: str) -> bytes:
        if (data := _read(os.path.join(place, _OBJECTS, name), place)) is None:
            raise LookupError(name)
        return data

    source = locked.source
    try:
        of_commit = (locked.resolved, source.subdirectory, read_object, str(source))
        blobs = dict(git_objects.library_files(*of_commit))
    except TreeError:
        return False
    damaged = _damaged(library)
    return blobs.keys() == library.listed.keys() and all(
        path in damaged
        or git_objects.has_hash(
            git_objects.with_header("blob", _read(f"{library.folder}/{path}", place) or b""), blob
        )
        for path, blob in blobs.items()
    )


def _damaged(library: KeptLibrary) -> set[str]:
    """Return the files that are not as they are listed."""
    return {
        path
        for path, listed in library.listed.items()
        if sha256(_read(f"{library.folder}/{path}", library.folder) or b"") != listed
    }


def _listing(files: Mapping[str, bytes], what: str) -> bytes:
    """Return the list of a library's files, as ``sha256sum`` prints it. Raises ``TreeError`` for paths that no list has."""
    if files.keys() <= set(contents.BESIDE):
        raise TreeError(
            f"{what} is not a library: it has none of {', '.join(catalog.PARTS)}",
            hint="a library has patches/<mod>/mod.toml; #subdirectory=… names its folder in a repository",
        )
    for path in files:
        if why := contents.why_not(path):
            raise git_objects.refusal(what, f"{path!r} {why}")
    return "".join(f"{sha256(data)}  {path}\n" for path, data in sorted(files.items())).encode()


def _read(path: str, folder: str) -> bytes | None:
    """Read a file that is kept, None where it is damaged, and to be had anew: gone, or no file any more."""
    with contextlib.suppress(ManifestError):
        return reading.read(path, folder)
    return None


def _place(locked: LockedLibrary) -> str:
    """Return the folder of a library, named by all that the lock says of it: under another claim, nothing is kept."""
    source = locked.source
    claims = (source.kind, source.place, source.subdirectory, locked.resolved, locked.files)
    name = sha256("\0".join(claims).encode())
    return os.path.join(cache_folder(os.environ), "libraries", name)
