"""What of a folder is its library, by the paths that a shared one may have: read whole, as bytes."""

import os
from collections.abc import Iterable, Iterator

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.library import catalog, reading
from vllm_mods.library.checksums import SUMS
from vllm_mods.library.mod_folder import MANIFEST

BESIDE = (SUMS, f"{SUMS}.sig")
"""What belongs to a library and lies in none of its parts."""


def read_files(folder: str) -> dict[str, bytes]:
    """Return the files of a folder's library by their paths in it; hidden files and caches are no part of it.

    Raises ``UsageError`` for a folder that is no library, ``ManifestError`` for what is no file of its own.
    """
    catalog.check_library(folder)
    files: dict[str, bytes] = {}
    size = 0
    for path in _paths(folder):
        place = os.path.join(folder, path)
        if why := why_not(path):
            raise UsageError(f"{place} {why}, so it cannot be shared", hint=f"ls -l {folder}")
        data = reading.read(place, folder)
        if data is None:
            continue  # SHA256SUMS and its signature need not be there
        files[path] = data
        size += len(data)
        if size > limits.LIBRARY or len(files) > limits.LIBRARY_FILES:
            why = f"{folder} has more than {limits.LIBRARY} or {limits.LIBRARY_FILES}, the limit for {limits.LIBRARY.what}"
            raise UsageError(why, hint=f"du -a {folder} | sort -n | tail")
    return files


def mods_in(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the mods among a library's files, sorted."""
    split = (path.split("/") for path in paths)
    return tuple(sorted(one[1] for one in split if [one[0], *one[2:]] == ["patches", MANIFEST]))


def _paths(folder: str) -> Iterator[str]:
    """Yield the paths of a library's files, in no particular order, and of the list that it may have."""
    yield from BESIDE
    for part in (one for one in catalog.PARTS if os.path.lexists(os.path.join(folder, one))):
        for path in reading.paths_below(os.path.join(folder, part), is_left_out):
            yield os.path.join(part, path)


def why_not(path: str) -> str:
    """Return why no file of a shared library may have this path, ``""`` if one may."""
    parts = path.split("/")
    return (
        "points outside the library" if not {"", ".", ".."}.isdisjoint(parts)
        else "" if path in BESIDE
        else f"is in none of {', '.join(catalog.PARTS)}" if parts[0] not in catalog.PARTS or len(parts) == 1
        else "is hidden or a cache" if any(map(is_left_out, parts))
        else "has a character in its name that other systems do not support" if not path.isprintable() or "\\" in path
        else ""
    )  # fmt: skip


def is_part(path: str) -> bool:
    """Return True for the path of a file or folder that belongs to a library."""
    parts = path.split("/")
    return path in BESIDE or (parts[0] in catalog.PARTS and not any(map(is_left_out, parts)))


def is_left_out(name: str) -> bool:
    """Return True for the name of a hidden file or a cache, which is no part of a library."""
    return name.startswith(".") or name == "__pycache__"
