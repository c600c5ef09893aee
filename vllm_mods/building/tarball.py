"""Tar archives whose bytes follow from their entries alone. Pure: entries in, bytes out.

POSIX.1-1988 headers (ustar), with a POSIX.1-2001 extended header for what does not fit one: long
names, names that are not ASCII, large owners and sizes. Our own rather than tarfile's, since the digest of a
layer is a promise, and the bytes that tarfile writes have changed between Python versions.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.base.untrusted import is_plain_path

_BLOCK = 512
_DIGITS = {"mode": 7, "uid": 7, "gid": 7, "size": 11, "mtime": 11}
"""The numbers of a header, in their order, each with its octal digits."""


class TarEntry(NamedTuple):
    """A file (``data``) or a folder (None) at a relative path, without a slash at its end.

    ``mode`` is permission bits, ``mtime`` whole seconds since 1970, ``owner`` its uid and gid: root's where
    nothing says another.
    """

    path: str
    data: bytes | None
    mode: int
    mtime: int = 0
    owner: tuple[int, int] | None = None


def write(entries: Iterable[TarEntry]) -> bytes:
    """Return the archive of the entries, in the order they are given, and its end.

    Raises ``ValueError`` for a path that an archive must not hold and for one that comes twice.
    """
    pieces = []
    paths = set()
    for entry in entries:
        if not is_plain_path(entry.path):
            raise ValueError(f"{entry.path!r} is not a plain relative path")
        if entry.path in paths:
            raise ValueError(f"{entry.path} appears twice in the archive")
        paths.add(entry.path)
        pieces += [*_head(entry, len(entry.data or b"")), _padded(entry.data or b"")]
    return b"".join((*pieces, bytes(2 * _BLOCK)))


def _head(entry: TarEntry, size: int) -> Iterator[bytes]:
    name = entry.path.encode("utf-8", "surrogateescape") + (b"/" if entry.data is None else b"")
    prefix, short = _split(name)
    extended = {"path": name} if short is None else {}
    uid, gid = entry.owner or (0, 0)
    numbers = {"uid": uid, "gid": gid, "size": size, "mtime": entry.mtime}
    for key, number in numbers.items():
        numbers[key] = min(max(number, 0), 8 ** _DIGITS[key] - 1)
        if numbers[key] != number:
            extended[key] = b"%d" % number
    if extended:
        records = b"".join(_record(key, value) for key, value in sorted(extended.items()))
        yield _header(b"", b"././@PaxHeader", b"x", mode=0o644, size=len(records))
        yield _padded(records)
    kind = b"5" if entry.data is None else b"0"
    yield _header(prefix, short or name[-100:], kind, mode=entry.mode, **numbers)


def _header(prefix: bytes, name: bytes, kind: bytes, **numbers: int) -> bytes:
    fields = (
        name.ljust(100, b"\0"),
        *(b"%0*o\0" % (digits, numbers.get(key, 0)) for key, digits in _DIGITS.items()),
        b" " * 8,  # the checksum counts itself as blanks
        kind,
        bytes(100),
        b"ustar\00000",
        bytes(64),  # no names of owners: they would be looked up on the machine that builds
        b"0000000\0" * 2,
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


def _record(key: str, value: bytes) -> bytes:
    """Return ``<length> key=value``; the length counts its own digits."""
    rest = b" %b=%b\n" % (key.encode(), value)
    length = len(rest)
    while len(b"%d" % length) + len(rest) != length:
        length += 1
    return b"%d" % length + rest


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _BLOCK)
