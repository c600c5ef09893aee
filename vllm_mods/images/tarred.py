"""What a tar says of a file."""

from __future__ import annotations

import contextlib
import tarfile
import zlib
from collections.abc import Iterator

from vllm_mods.base.errors import TreeError
from vllm_mods.formats import tars
from vllm_mods.images.model import DIR, FILE, LINK, OTHER, ImageEntry

_CHUNK = 1 << 20
BROKEN = (*tars.BROKEN, zlib.error)
"""What the standard library raises for wrong bytes in a tar or around it."""


def entry(member: tarfile.TarInfo, path: str) -> ImageEntry:
    """Return a member as the entry at ``path``; a second name of a file is a file."""
    if member.isdir():
        kind = DIR
    elif member.issym():
        kind = LINK
    else:
        kind = FILE if member.isreg() or member.islnk() else OTHER
    return ImageEntry(
        path=path,
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime=int(member.mtime),
        target=member.linkname if kind == LINK else "",
        size=member.size if member.isreg() else 0,
    )


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the bytes of a member. Raises ``EOFError`` if it is cut short."""
    file = archive.extractfile(member)
    data = b"" if file is None else b"".join(iter(lambda: file.read(_CHUNK), b""))
    if len(data) != member.size:
        raise EOFError(f"{member.name} is cut short")
    return data


@contextlib.contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Turn what the standard library says of broken tars into ``TreeError``."""
    try:
        yield
    except BROKEN as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TreeError(f"{what}: broken or cut short: {reason}", hint=hint) from error
