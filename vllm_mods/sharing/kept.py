"""What was fetched of libraries, in the cache under what it is: the sha256 of the list of its files.

The list has the form of ``sha256sum``; each file that is read is held against it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, Refused, TreeError
from vllm_mods.base.output import write_folder
from vllm_mods.library import catalog, checksums, reading
from vllm_mods.sharing import library_tar

_LIST, _FILES = "list", "files"


def listing(files: Mapping[str, bytes], what: str) -> bytes:
    """Return the list of a library's files. Raises ``TreeError`` for names that no list has."""
    if files.keys() <= set(library_tar.BESIDE):
        raise TreeError(
            f"{what} is no library: it has no {', '.join(catalog.PARTS)}",
            hint="a library holds patches/<mod>/mod.toml; #subdirectory=… says where in a repository",
        )
    for path in files:
        if why := library_tar.why_not(path):
            raise TreeError(f"{what}: {path!r} {why}", hint="tell its author")
    return "".join(f"{sha256(data)}  {path}\n" for path, data in sorted(files.items())).encode()


def keep(files: Mapping[str, bytes], what: str) -> str:
    """Put a library into the cache, and return the sha256 of its list. Raises ``Refused`` where that cannot be."""
    data = listing(files, what)
    digest = sha256(data)
    place = _place(digest)
    was_there = os.path.lexists(place)
    if is_whole(digest):
        return digest
    inside = {_LIST: data} | {f"{_FILES}/{path}": one for path, one in files.items()}
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        if was_there:  # and damaged; what another run has put there since is not
            shutil.rmtree(place, ignore_errors=True)
        write_folder(place, inside)
    except OSError as error:
        if not is_whole(digest):  # else another run was quicker
            raise Refused(
                f"{place}: {error.strerror}: {what} cannot be kept", hint=f"ls -ld {place}; df -h"
            ) from error
    return digest


def opened(digest: str) -> tuple[str, dict[str, str]] | None:
    """Return the folder of a library that is kept, and its list; None if not all of it is there."""
    place = _place(digest)
    data = _read(os.path.join(place, _LIST), place) if os.path.isdir(place) else None
    if data is None or sha256(data) != digest:
        return None
    listed = checksums.parse(data, place)
    folder = os.path.join(place, _FILES)
    return (folder, listed) if all(os.path.lexists(f"{folder}/{one}") for one in listed) else None


def is_whole(digest: str) -> bool:
    """Tell whether each file of a library is kept as it is listed."""
    there = opened(digest)
    return there is not None and all(
        sha256(_read(f"{there[0]}/{path}", there[0]) or b"") == listed
        for path, listed in there[1].items()
    )


def _read(path: str, folder: str) -> bytes | None:
    """Read a file that is kept, None where it is damaged, and to be had anew: gone, or no file any more."""
    with contextlib.suppress(ManifestError):
        return reading.read(path, folder)
    return None


def _place(digest: str) -> str:
    return os.path.join(cache_folder(os.environ), "libraries", digest)
