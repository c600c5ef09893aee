"""Fetched libraries in the cache, each under the hash of what the lock says of it.

Beside its files lie the list of their hashes, whose own hash the lock has, and of a git library the
objects by which its commit names these files: what the lock claims is proven without a network.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, Refused, TreeError
from vllm_mods.base.output import fill_folder
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


def keep(locked: LockedLibrary, fetched: FetchedLibrary) -> KeptLibrary:
    """Put a library into the cache, and open it. Raises ``Refused`` where that cannot be."""
    place = _place(locked)
    was_there = os.path.lexists(place)
    if library := open_kept(locked):
        return library
    inside = {_LIST: _listing(fetched.files, str(locked.source))}
    inside |= {f"{_FILES}/{path}": data for path, data in fetched.files.items()}
    inside |= {f"{_OBJECTS}/{name}": data for name, data in fetched.objects.items()}
    try:
        above = os.path.dirname(place)
        os.makedirs(above, mode=0o700, exist_ok=True)
        if was_there:  # and damaged; what another run has put there since is not
            shutil.rmtree(place, ignore_errors=True)
        fill_folder(tempfile.mkdtemp(dir=above, prefix="."), inside, place)
        why = "the folder was changed by another program"
    except OSError as error:
        why = str(error.strerror)
    if library := open_kept(locked):  # perhaps that of another run, which was quicker
        return library
    raise Refused(f"{place}: {locked.source} is not stored: {why}", hint=f"ls -ld {place}; df -h")


def open_kept(locked: LockedLibrary) -> KeptLibrary | None:
    """Return a library from the cache; None unless its files are whole, and those of its commit."""
    place = _place(locked)
    data = _read(os.path.join(place, _LIST), place)
    if data is None or sha256(data) != locked.files:
        return None
    library = KeptLibrary(os.path.join(place, _FILES), checksums.parse(data, place))
    try:
        blobs = dict(_blobs(locked, place)) if locked.source.kind == "git" else None
    except TreeError:
        return None
    if blobs is not None and blobs.keys() != library.listed.keys():
        return None
    for path, listed in library.listed.items():
        data = _read(os.path.join(library.folder, path), library.folder)
        if data is None or sha256(data) != listed:
            return None
        blob = git_objects.with_header("blob", data)
        if blobs is not None and not git_objects.has_hash(blob, blobs[path]):
            return None
    return library


def _blobs(locked: LockedLibrary, place: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the blob of each file of a commit, by the objects that lie beside the files."""

    def read_object(name: str) -> bytes:
        if (data := _read(os.path.join(place, _OBJECTS, name), place)) is None:
            raise LookupError(name)
        return data

    source = locked.source
    return git_objects.library_files(locked.resolved, source.subdirectory, read_object, str(source))


def _listing(files: Mapping[str, bytes], what: str) -> bytes:
    """Return the list of a library's files, as ``sha256sum`` prints it. Raises ``TreeError`` for paths that no list has."""
    if files.keys() <= set(contents.BESIDE):
        why = f"{what} is not a library: it has none of {', '.join(catalog.PARTS)}"
        hint = (
            "a library has patches/<mod>/mod.toml; #subdirectory=… names its folder in a repository"
        )
        raise TreeError(why, hint=hint)
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
    return os.path.join(cache_folder(os.environ), "libraries", sha256("\0".join(claims).encode()))
