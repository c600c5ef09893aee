"""sha256 of what is in memory.

``hashlib`` loads OpenSSL, which takes longer than hashing all that one mod touches; CPython's
own implementation is a built-in module (``random`` imports its sibling in the same way).
"""

from __future__ import annotations

from typing import overload

try:  # Python 3.12 and newer
    from _sha2 import sha256 as _sha256  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    try:  # Python 3.11
        from _sha256 import sha256 as _sha256  # type: ignore[import-not-found,no-redef,unused-ignore]
    except ImportError:  # a Python built without them
        from hashlib import sha256 as _sha256


@overload
def sha256(data: bytes) -> str: ...
@overload
def sha256(data: None) -> None: ...
@overload
def sha256(data: bytes | None) -> str | None: ...
def sha256(data: bytes | None) -> str | None:
    """Return the hexadecimal sha256, None for a file that is not there."""
    return None if data is None else _sha256(data).hexdigest()
