"""Which paths a shared library may have. Pure."""

from __future__ import annotations

import os

from vllm_mods.library.catalog import PARTS
from vllm_mods.library.checksums import SUMS

BESIDE = (SUMS, f"{SUMS}.sig")
"""What belongs to a library and lies in none of its parts."""
_CACHES = frozenset({"__pycache__"})
_LONGEST_NAME = 255  # bytes, on Linux's file systems
_LONGEST_PATH = 4096


def why_not(path: str) -> str:
    """Return why no file of a shared library may have this path, ``""`` if one may."""
    parts = path.split("/")
    return (
        "leads out of the library" if not {"", ".", ".."}.isdisjoint(parts)
        else "" if path in BESIDE
        else f"lies in none of {', '.join(PARTS)}" if parts[0] not in PARTS or len(parts) == 1
        else "is hidden, or a cache" if any(map(is_left_out, parts))
        else "has a character in its name that does not travel" if not path.isprintable() or "\\" in path
        else f"has a name of more than {_LONGEST_NAME} bytes"
        if any(len(os.fsencode(part)) > _LONGEST_NAME for part in parts)
        else f"has a path of more than {_LONGEST_PATH} bytes" if len(os.fsencode(path)) > _LONGEST_PATH
        else ""
    )  # fmt: skip


def is_part(path: str) -> bool:
    """Return True for the path of a file or folder that belongs to a library."""
    parts = path.split("/")
    return path in BESIDE or (parts[0] in PARTS and not any(map(is_left_out, parts)))


def is_left_out(name: str) -> bool:
    """Return True for the name of a hidden file or a cache, which is no part of a library."""
    return name.startswith(".") or name in _CACHES
