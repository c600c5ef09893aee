"""Tars that anybody may have made: read with the standard library, within limits.

The headers that go before a member are read in one piece, whatever their size says, and a size may be
negative, which leads back to where the reader has been.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

BROKEN = (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, IndexError)
"""What the standard library raises for wrong bytes in a tar."""
MOST_MEMBERS = 500_000
# A pattern in older Pythons takes time by the square of a header's length (CVE-2024-6232).
_SQUARE = sys.version_info < (3, 11, 10) or (3, 12) <= sys.version_info < (3, 12, 6)
_LARGEST_HEADER = 8 << 10 if _SQUARE else 1 << 20
_BEFORE = frozenset({*b"xgXLK"})


class Info(tarfile.TarInfo):
    """A member whose size can be true."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Info:
        """Read a header. Raises ``ReadError`` for sizes that no tar has."""
        made = super().frombuf(buf, encoding, errors)
        if made.size < 0:
            raise tarfile.ReadError(f"{made.name!r} has {made.size} bytes")
        if ord(made.type) in _BEFORE and made.size > _LARGEST_HEADER:
            raise tarfile.ReadError(
                f"the extended header of a member takes {made.size:,} bytes, and {_LARGEST_HEADER:,} "
                "is the most"
            )
        return made


def members(file: BinaryIO, *, most: int = MOST_MEMBERS) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an unpacked tar in a file. Raises one of ``BROKEN``."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=Info) as archive:
        for number, member in enumerate(archive):
            if number >= most:
                raise tarfile.ReadError(f"it has more than {most:,} members")
            archive.members = []  # type: ignore[attr-defined]  # it would remember them all
            yield member
