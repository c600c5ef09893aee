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


def write_tree(folder: Path, version: str, **changed: str | None) -> Path:
    """Make a vLLM of a version: the one that the mods were written for, with other files (None: without one)."""
    files: dict[str, str | None] = {path: data.decode() for path, data in FILES.items()}
    for name, text in changed.items():
        files[f"vllm/{name.replace('__', '/', 1)}.py"] = text
    for path, text in files.items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n")
    return folder


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
