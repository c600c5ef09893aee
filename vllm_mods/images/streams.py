"""Streams of image layers: checked against their digest, unpacked, limited, read forwards only, as tars."""

import contextlib
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.formats import tars
from vllm_mods.images.model import DIR, FILE, LINK, OTHER, ImageEntry

try:
    from compression import zstd  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # before Python 3.14
    from backports import zstd

CHUNK = 1 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""What a packed stream begins with."""
_BROKEN = (*tars.BROKEN, zlib.error, zstd.ZstdError)


class CheckedStream(io.RawIOBase):
    """A blob that raises at its end if size or digest is wrong; ``on_read`` gets how much came."""

    def __init__(
        self,
        source: limits.Sizable,
        digest: str,
        size: int | None,
        what: str,
        on_read: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self._source = source
        self._algorithm, _, self._expected = digest.partition(":")
        if self._algorithm not in {"sha256", "sha512"}:
            why = f"{what}: its digest has an unsupported kind: {digest}"
            raise TreeError(why, hint="vllm-mods supports the digests sha256 and sha512")
        self._hash = hashlib.new(self._algorithm)
        self._size = size
        self._what = what
        self._on_read = on_read
        self._done = 0

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, into: Any) -> int:  # noqa: ANN401  (a buffer)
        """Read, and at the end compare. Raises ``TreeError``."""
        data = self._source.read(len(into))
        into[: len(data)] = data
        self._done += len(data)
        at_end, size = bool(into) and not data, self._size
        if size is not None and (self._done > size or (at_end and self._done < size)):
            has = "more" if self._done > size else str(self._done)
            why = f"{self._what}: it should have {self._size} bytes, but has {has}"
            raise TreeError(why, hint="the copy is damaged or incomplete: get the image again")
        self._hash.update(data)
        if self._on_read is not None and data:
            self._on_read(self._done)
        if at_end and self._hash.hexdigest() != self._expected:
            why = f"{self._what}: its contents do not match {self._algorithm}:{self._expected}"
            raise TreeError(why, hint="the copy is damaged: get the image again")
        return len(data)


def unpacked(source: io.IOBase) -> limits.Sizable:
    """Return a source of the unpacked bytes: gzip, zstd or plain, detected by the first bytes."""
    whole = io.BufferedReader(cast("io.RawIOBase", source), CHUNK)
    head = whole.peek(len(ZSTD))
    if head.startswith(GZIP):
        return gzip.GzipFile(fileobj=whole, mode="rb")
    if head.startswith(ZSTD):
        return cast("limits.Sizable", zstd.ZstdFile(whole))
    return whole


class Forward:
    """A limited source for ``tarfile`` to read forwards (``r|``); all goes through ``hashed``, if any."""

    def __init__(self, source: limits.Sizable, hashed: "hashlib._Hash | None" = None) -> None:
        self._source = source
        self._hashed = hashed
        self._done = 0

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes. Raises ``ValueError`` past the limit."""
        data = self._source.read(size)
        self._done += len(data)
        if self._done > limits.LAYER:
            raise ValueError(f"it unpacks to more than {limits.LAYER}")
        if self._hashed is not None:
            self._hashed.update(data)
        return data

    def finish(self) -> None:
        """Read what is left, so that all of it is hashed, and compared where the source is checked."""
        while self.read(CHUNK):
            pass


def entry(member: tarfile.TarInfo, path: str, first: ImageEntry | None = None) -> ImageEntry:
    """Return a member as the entry at ``path``; a second name of ``first`` is what that is."""
    kind = FILE if member.isreg() or member.islnk() else OTHER
    kind = first.kind if first else DIR if member.isdir() else LINK if member.issym() else kind
    return ImageEntry(
        path=path,
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        mtime=int(member.mtime),
        target=first.target if first else member.linkname if kind == LINK else "",
        size=first.size if first else member.size if member.isreg() else 0,
    )


def content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return the bytes of a member. Raises ``EOFError`` if it is cut short, ``ValueError`` past the limit."""
    if member.size > limits.UNPACKED_FILE:
        raise ValueError(f"{member.name} has more than {limits.UNPACKED_FILE}")
    file = archive.extractfile(member)
    data = b"" if file is None else b"".join(iter(lambda: file.read(CHUNK), b""))
    if len(data) != member.size:
        raise EOFError(f"{member.name} is cut short")
    return data


@contextlib.contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Turn what the standard library says of broken tars into ``TreeError``."""
    try:
        yield
    except _BROKEN as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise TreeError(f"{what}: broken or cut short: {reason}", hint=hint) from error
