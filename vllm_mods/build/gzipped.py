"""gzip with nothing in it but the data. Pure.

The header is stated here, since Python's own versions disagree on its last byte. What follows is
zlib's, and another zlib (zlib-ng, a later version) may pack the same bytes otherwise. So nothing that
identifies an image rests on it: its ID is the digest of its configuration, which names each layer by
the digest of its tar (diff_id). The digest of a manifest does name the packed bytes.
"""

from __future__ import annotations

import zlib

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"  # RFC 1952: no name, no time, no system
_LEVEL = 9


def pack(data: bytes) -> bytes:
    """Return ``data`` as one gzip member."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    sizes = (zlib.crc32(data), len(data) % (1 << 32))
    trailer = b"".join(size.to_bytes(4, "little") for size in sizes)
    return _HEADER + packer.compress(data) + packer.flush() + trailer
