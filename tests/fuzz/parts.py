"""An input of several texts, for what reads more than one at a time."""

from __future__ import annotations

MARK = b"\n=8<=\n"


def joined(*texts: bytes | str) -> bytes:
    """Put texts into one input."""
    return MARK.join(one.encode() if isinstance(one, str) else one for one in texts)


def taken(data: bytes, count: int) -> list[bytes]:
    """Take ``count`` texts out of an input; what is not there is empty."""
    found = data.split(MARK, count - 1)
    return found + [b""] * (count - len(found))
