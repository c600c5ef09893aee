"""A small installed vLLM, a library of two mods that fit it, and a command line in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, write_mod
from small_site import build

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
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


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site", FILES)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    fast = LOADER.replace(
        'path = os.path.join("weights", name)\n        return path\n\n\nclass Saver',
        'path = os.path.join("fast", name)\n        return path\n\n\nclass Saver',
    )
    write_mod(folder, "fast", diff_of("vllm/loader.py", LOADER, fast))
    write_mod(
        folder, "limit", diff_of("vllm/other.py", OTHER, OTHER.replace("LIMIT = 1", "LIMIT = 2"))
    )
    return folder


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str], library: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(library))
    for name in ("WORKSPACE_DIR", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)

    def do(*arguments: object) -> Answer:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return do
