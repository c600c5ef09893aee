"""What of a folder is its library: read whole, as bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.library import catalog, reading
from vllm_mods.library.mod_folder import MANIFEST
from vllm_mods.sharing import library_paths


def read_files(folder: str) -> dict[str, bytes]:
    """Return the files of a folder's library by their paths in it; hidden files and caches are no part of it.

    Raises ``UsageError`` for a folder that is no library, ``ManifestError`` for what is no file of its own.
    """
    catalog.check_library(folder)
    files: dict[str, bytes] = {}
    size = 0
    for path in _paths(folder):
        place = os.path.join(folder, path)
        if why := library_paths.why_not(path):
            raise UsageError(f"{place} {why}, so it cannot be shared", hint=f"ls -l {folder}")
        data = reading.read(place, folder)
        if data is None:
            continue  # SHA256SUMS and its signature need not be there
        files[path] = data
        size += len(data)
        if size > limits.LIBRARY or len(files) > limits.LIBRARY_FILES:
            raise UsageError(
                f"{folder} holds more than {limits.LIBRARY} or {limits.LIBRARY_FILES}, and that is the most "
                f"of {limits.LIBRARY.what}",
                hint=f"du -a {folder} | sort -n | tail",
            )
    return files


def mods_in(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the mods among a library's files, sorted."""
    split = (path.split("/") for path in paths)
    return tuple(sorted(one[1] for one in split if [one[0], *one[2:]] == ["patches", MANIFEST]))


def _paths(folder: str) -> Iterator[str]:
    """Yield the paths of a library's files, in no particular order, and of the list that it may have."""
    yield from library_paths.BESIDE
    for part in catalog.PARTS:
        top = os.path.join(folder, part)
        try:
            for path in (
                reading.paths_below(top, library_paths.is_left_out) if os.path.lexists(top) else ()
            ):
                yield os.path.join(part, path)
        except OSError as error:
            place = error.filename or folder
            raise UsageError(
                f"{place} cannot be read: {error.strerror}", hint=f"ls -ld {place}"
            ) from error
