"""Tars that anybody may have made: read with the standard library, within limits.

The headers that go before a member are read in one piece, whatever their size says, and a size may be
negative, which leads back to where the reader has been.
"""

import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from vllm_mods.base import limits

BROKEN = (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, IndexError)
"""What the standard library raises for wrong bytes in a tar."""
_BEFORE = frozenset({*b"xgXLK"})


class Info(tarfile.TarInfo):
    """A member whose size can be true."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Read what follows a header. Raises ``ReadError`` for sizes that no tar has.

        ``tarfile`` has it overridden for other members; since Python 3.14 its reader does not call ``frombuf``.
        """
        if self.size < 0:
            raise tarfile.ReadError(f"{self.name!r} has {self.size} bytes")
        if ord(self.type) in _BEFORE and self.size > limits.TAR_HEADER:
            why = f"the extended header of a member takes {self.size:,} bytes; the limit is {limits.TAR_HEADER}"
            raise tarfile.ReadError(why)
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


def members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an unpacked tar in a file. Raises one of ``BROKEN``."""
    with tarfile.open(fileobj=file, mode="r:", tarinfo=Info) as archive:
        for number, member in enumerate(archive):
            if number >= limits.TAR_MEMBERS:
                raise tarfile.ReadError(f"it has more than {int(limits.TAR_MEMBERS):,} members")
            archive.members = []  # type: ignore[attr-defined]  # it would remember them all
            yield member
