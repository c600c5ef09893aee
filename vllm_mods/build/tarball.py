"""Tar archives whose bytes follow from their entries alone. Pure: entries in, bytes out.

POSIX.1-1988 headers (ustar), with a POSIX.1-2001 extended header for what does not fit one: long
names, names that are not ASCII, large owners and sizes. Our own rather than tarfile's, since the digest of a
layer is a promise, and the bytes that tarfile writes have changed between Python versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

FILE, FOLDER = b"0", b"5"
_BLOCK = 512
END = bytes(2 * _BLOCK)
"""What an archive ends with."""
_MOST_IN_7_DIGITS = 0o7777777
_MOST_IN_11_DIGITS = 0o77777777777


class TarEntry(NamedTuple):
    """A file (``data``) or a folder (None) at a relative path, without a slash at its end.

    ``mode`` is permission bits, ``mtime`` whole seconds since 1970.
    """

    path: str
    data: bytes | None
    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = 0


def write(entries: Iterable[TarEntry]) -> bytes:
    """Return the archive of the entries, in the order they are given, and its end.

    Raises ``ValueError`` for a path that an archive must not hold and for one that comes twice.
    """
    return b"".join((*members(entries), END))


def members(entries: Iterable[TarEntry]) -> Iterator[bytes]:
    """Yield the members of an archive piece by piece, without its end; see ``write``."""
    seen = set()
    for entry in entries:
        _check(entry.path)
        if entry.path in seen:
            raise ValueError(f"{entry.path} is in the archive twice")
        seen.add(entry.path)
        yield from _head(entry, len(entry.data or b""))
        yield _padded(entry.data or b"")


def large(entry: TarEntry, size: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a file whose bytes come in ``pieces`` of ``size`` together; the entry's are not used.

    Raises ``ValueError`` if they are more or fewer.
    """
    _check(entry.path)
    yield from _head(entry, size)
    done = 0
    for piece in pieces:
        done += len(piece)
        yield piece
    if done != size:
        raise ValueError(f"{entry.path}: {done} bytes came of {size}")
    yield bytes(-size % _BLOCK)


def _head(entry: TarEntry, size: int) -> Iterator[bytes]:
    name = entry.path.encode("utf-8", "surrogateescape")
    if entry.data is None:
        name += b"/"
    extended: list[tuple[bytes, bytes]] = []
    prefix, short = _split(name)
    if short is None:
        extended.append((b"path", name))
        prefix, short = b"", name[-100:]
    owners = []
    for key, number in ((b"gid", entry.gid), (b"uid", entry.uid)):
        if number > _MOST_IN_7_DIGITS:
            extended.append((key, b"%d" % number))
        owners.append(min(number, _MOST_IN_7_DIGITS))
    if size > _MOST_IN_11_DIGITS:
        extended.append((b"size", b"%d" % size))
    if not 0 <= entry.mtime <= _MOST_IN_11_DIGITS:
        extended.append((b"mtime", b"%d" % entry.mtime))
    if extended:
        records = b"".join(_record(key, value) for key, value in sorted(extended))
        yield _header(b"", b"././@PaxHeader", b"x", len(records), mode=0o644)
        yield _padded(records)
    yield _header(
        prefix,
        short,
        FOLDER if entry.data is None else FILE,
        min(size, _MOST_IN_11_DIGITS),
        mode=entry.mode,
        uid=owners[1],
        gid=owners[0],
        mtime=min(max(entry.mtime, 0), _MOST_IN_11_DIGITS),
    )


def _header(
    prefix: bytes,
    name: bytes,
    kind: bytes,
    size: int,
    *,
    mode: int,
    uid: int = 0,
    gid: int = 0,
    mtime: int = 0,
) -> bytes:
    fields = (
        name.ljust(100, b"\0"),
        b"%07o\0" % mode,
        b"%07o\0" % uid,
        b"%07o\0" % gid,
        b"%011o\0" % size,
        b"%011o\0" % mtime,
        b" " * 8,  # the checksum counts itself as blanks
        kind,
        bytes(100),
        b"ustar\00000",
        bytes(32),  # no names of owners: they would be looked up on the machine that builds
        bytes(32),
        b"0000000\0",
        b"0000000\0",
        prefix.ljust(155, b"\0"),
        bytes(12),
    )
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _split(name: bytes) -> tuple[bytes, bytes | None]:
    """Split a name at a slash so that both halves fit; the second is None where none fits."""
    if not name.isascii():
        return b"", None
    if len(name) <= 100:
        return b"", name
    at = name.rfind(b"/", 0, min(156, len(name) - 1))
    if at <= 0 or len(name) - at - 1 > 100:
        return b"", None
    return name[:at], name[at + 1 :]


def _record(key: bytes, value: bytes) -> bytes:
    """Return ``<length> key=value``; the length counts its own digits."""
    rest = b" %b=%b\n" % (key, value)
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length += 1
    return b"%d" % length + rest


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _BLOCK)


def _check(path: str) -> None:
    if "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError(f"{path!r} is no plain relative path")
