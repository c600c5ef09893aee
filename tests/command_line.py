"""What tests of the command line share: the files of a small vLLM, a library of two mods that fit it, an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mod_making import diff_of, write_mod

if TYPE_CHECKING:
    from pathlib import Path

LOADER = """\
import os


class Loader:
    def load(self, name):
        path = os.path.join("weights", name)
        return path


class Saver:
    def save(self, name):
        path = os.path.join("weights", name)
        return path
"""
OTHER = "LIMIT = 1\n\n\ndef limit():\n    return LIMIT\n"
FILES = {
    "vllm/__init__.py": b"",
    "vllm/a.py": b"A = 1\n",
    "vllm/b.py": b"B = 1\n",
    "vllm/loader.py": LOADER.encode(),
    "vllm/other.py": OTHER.encode(),
}


class Answer:
    """What a call printed and returned."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def write_library(folder: Path) -> Path:
    """Write the mods `fast` and `limit`."""
    fast = LOADER.replace(
        'path = os.path.join("weights", name)\n        return path\n\n\nclass Saver',
        'path = os.path.join("fast", name)\n        return path\n\n\nclass Saver',
    )
    write_mod(folder, "fast", diff_of("vllm/loader.py", LOADER, fast))
    write_mod(
        folder, "limit", diff_of("vllm/other.py", OTHER, OTHER.replace("LIMIT = 1", "LIMIT = 2"))
    )
    return folder
