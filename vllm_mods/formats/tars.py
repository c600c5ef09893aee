"""Tars that anybody may have made: read with the standard library, within limits.

The headers that go before a member are read in one piece, whatever their size says, and a size may be
negative, which leads back to where the reader has been.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from vllm_mods.base import limits

BROKEN = (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, IndexError)
"""What the standard library raises for wrong bytes in a tar."""
_BEFORE = frozenset({*b"xgXLK"})


class Info(tarfile.TarInfo):
    """A member whose size can be true."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Info:
        """Read a header. Raises ``ReadError`` for sizes that no tar has."""
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0:
            raise tarfile.ReadError(f"{info.name!r} has {info.size} bytes")
        if ord(info.type) in _BEFORE and info.size > limits.TAR_HEADER:
            raise tarfile.ReadError(
                f"the extended header of a member takes {info.size:,} bytes; the limit is {limits.TAR_HEADER}"
            )
        return info


def members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an unpacked tar in a file. Raises one of ``BROKEN``."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=Info) as archive:
        for number, member in enumerate(archive):
            if number >= limits.TAR_MEMBERS:
                raise tarfile.ReadError(f"it has more than {int(limits.TAR_MEMBERS):,} members")
            archive.members = []  # type: ignore[attr-defined]  # it would remember them all
            yield member
