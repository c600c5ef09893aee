"""Zips that anybody may have made: their directory checked, their files read to a limit.

A directory may lie in every number: where a file starts, what it unpacks to, and that two files share
their bytes, by which a small zip unpacks to any size.
"""

import lzma
import struct
import zipfile
import zlib
from typing import BinaryIO
from zipfile import ZipInfo

from vllm_mods.base import limits

BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,  # an unknown compression
    OSError,
    OverflowError,
    RuntimeError,  # encrypted
    ValueError,
)
"""What the standard library raises for a zip with wrong bytes in it."""
# The end of a zip: three records, and a comment that may have 65,535 bytes.
_ENDS = 98
_TAIL = _ENDS + 65_535
_HEADER = 30  # bytes in front of each file, its name and extra field not counted


def opened(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip, unless its end states too long a directory (APPNOTE.TXT, 4.3.14, 4.3.16). Raises one of ``BROKEN``."""
    size, tail = file.seek(0, 2), b""
    for length in (_ENDS, _TAIL):  # without a comment, and with one
        file.seek(max(0, size - length))
        tail = file.read(length)
        if tail.rfind(b"PK\5\6") >= 0:
            break
    file.seek(0)
    for mark, at, length in ((b"PK\5\6", 12, 4), (b"PK\6\6", 40, 8)):
        at_mark = tail.rfind(mark)
        stated = int.from_bytes(tail[at_mark + at : at_mark + at + length], "little")
        if at_mark >= 0 and limits.ZIP_DIRECTORY < stated != 0xFFFFFFFF:
            raise zipfile.BadZipFile(f"its directory takes {stated:,} bytes, which is impossible")
    return zipfile.ZipFile(file)


def files(archive: zipfile.ZipFile) -> tuple[ZipInfo, ...]:
    """Return the entries but folders. Raises ``BadZipFile`` for a directory that cannot be true."""
    infos = tuple(info for info in archive.infolist() if not info.filename.endswith("/"))
    end = 0
    last = ""
    for info in sorted(infos, key=lambda info: info.header_offset):
        if not info.filename:
            raise zipfile.BadZipFile("an entry has no name")
        if info.header_offset < end:
            raise zipfile.BadZipFile(f"{info.filename!r} overlaps {last or 'nothing'!r}")
        end = info.header_offset + _HEADER + info.compress_size
        last = info.filename
        if info.compress_size < 0 or end > archive.start_dir:
            raise zipfile.BadZipFile(f"{last!r} does not end before the directory")
    return infos


def content(archive: zipfile.ZipFile, info: ZipInfo, *, most: int | None = None) -> bytes:
    """Return what a file unpacks to. Raises one of ``BROKEN``, also for more than ``most`` bytes [``limits.UNPACKED_FILE``]."""
    largest = limits.UNPACKED_FILE if most is None else most
    if info.file_size > largest:
        raise ValueError(f"it unpacks to {info.file_size:,} bytes; the limit is {int(largest):,}")
    with archive.open(info) as file:
        # not read(): that unpacks all there is before it looks at the size that was stated
        data = file.read(info.file_size)
        if len(data) != info.file_size or file.read(1):
            raise zipfile.BadZipFile(f"it does not unpack to the {info.file_size:,} bytes stated")
    return data
