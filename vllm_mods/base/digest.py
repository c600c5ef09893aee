"""sha256 of what is in memory."""

import hashlib
from typing import overload


@overload
def sha256(data: bytes) -> str: ...
@overload
def sha256(data: None) -> None: ...
@overload
def sha256(data: bytes | None) -> str | None: ...
def sha256(data: bytes | None) -> str | None:
    """Return the hexadecimal sha256, None for a file that is not there."""
    return None if data is None else hashlib.sha256(data).hexdigest()
