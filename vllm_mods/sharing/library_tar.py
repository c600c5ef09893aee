"""The files of a library as one tar, whose bytes follow from theirs alone. Pure.

It is not packed: another zlib packs the same bytes otherwise, and the digest of what is published is
to be the same wherever it is made. What is read back has to be, byte for byte, what is written here.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.building import tarball
from vllm_mods.formats import tars
from vllm_mods.library.catalog import PARTS
from vllm_mods.library.checksums import SUMS

BESIDE = (SUMS, f"{SUMS}.sig")
"""What belongs to a library and lies in none of its parts."""
_CACHES = frozenset({"__pycache__"})
_LONGEST_NAME = 255  # bytes, on Linux's file systems


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return the tar of a library's files, by their paths in it."""
    return tarball.write(tarball.TarEntry(path, files[path], 0o644) for path in sorted(files))


def unpack(data: bytes, where: str) -> dict[str, bytes]:
    """Read what ``pack`` wrote. Raises ``TreeError`` for anything else."""
    found: dict[str, bytes] = {}
    try:
        for member in tars.members(io.BytesIO(data), most=limits.LIBRARY_FILES):
            why = "is in it twice" if member.name in found else _no_file(member)
            if why := why or why_not(member.name):
                raise _refused(where, f"{member.name!r} {why}")
            start = member.offset_data
            found[member.name] = data[start : start + member.size]
    except tars.BROKEN as error:
        raise _refused(where, f"its tar cannot be read: {error}") from error
    for path in found:
        if any(str(above) in found for above in PurePosixPath(path).parents):
            raise _refused(where, f"{path!r} lies in what is a file")
    if not found or pack(found) != data:
        raise _refused(where, "its tar is not as `vllm-mods publish` writes one")
    return found


def why_not(path: str) -> str:
    """Return why no file of a library that is shared has this path, ``""`` if one may."""
    parts = path.split("/")
    return (
        "leads out of the library" if not {"", ".", ".."}.isdisjoint(parts)
        else "" if path in BESIDE
        else f"lies in none of {', '.join(PARTS)}" if parts[0] not in PARTS or len(parts) == 1
        else "is hidden, or a cache" if any(map(is_left_out, parts))
        else "has a character in its name that does not travel" if not path.isprintable() or "\\" in path
        else f"has a name of more than {_LONGEST_NAME} bytes"
        if any(len(os.fsencode(part)) > _LONGEST_NAME for part in parts)
        else ""
    )  # fmt: skip


def is_part(path: str) -> bool:
    """Tell whether a path in a library is one of what makes it up."""
    parts = path.split("/")
    return path in BESIDE or (parts[0] in PARTS and not any(map(is_left_out, parts)))


def is_left_out(name: str) -> bool:
    """Tell whether a file or folder is somebody's own, and no part of the library that it lies in."""
    return name.startswith(".") or name in _CACHES


def _no_file(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"is a link, to {member.linkname!r}"
    if not member.isreg() or member.issparse():
        return "is no regular file"
    return ""


def _refused(where: str, why: str) -> TreeError:
    return TreeError(
        f"{where}: {why}; nothing of it was taken",
        hint="ask whoever published it, or has the registry",
    )
