"""A library with a pairing for the small vLLM of the tests, and the calls to lock and build it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from command_line import Answer
from mod_making import diff_of

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

NAME = "small"
BASE = "localhost/paired:latest"
# When the patched file was written, and what was compiled of it then.
OLD = 1_500_000_000
STALE = f"vllm/__pycache__/{os.path.basename(importlib.util.cache_from_source('a.py'))}"
TEMPLATE = "{{ messages }}"
# The same number of bytes as before, and with OLD as its time: what bytecode is told apart by.
PATCH = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")


def library(folder: Path, base: str) -> Path:
    """Make a library: a mod that patches vllm/a.py, one that brings a template, and a pairing."""
    mods = {
        "patching": 'patches = ["x.patch"]',
        "writing": 'templates = [{ name = "small", file = "small.jinja" }]',
    }
    for name, variant in mods.items():
        place = folder / "patches" / name
        place.mkdir(parents=True)
        (place / "x.patch").write_bytes(PATCH)
        (place / "mod.toml").write_text(
            f'schema = 1\nname = "{name}"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n'
            f'[[variant]]\nid = "a"\nvllm = ">=0.19"\n{variant}\n'
        )
    (folder / "templates/small").mkdir(parents=True)
    (folder / "templates/small/template.jinja").write_text(TEMPLATE)
    (folder / "pairings").mkdir()
    (folder / f"pairings/{NAME}.toml").write_text(
        f'schema = 1\nname = "{NAME}"\nsummary = "s"\nmodel = "org/small"\nbase = "{base}"\n'
        'mods = ["patching"]\ntemplates = ["small"]\n'
        'command = "vllm serve org/small --chat-template small.jinja"\n'
    )
    return folder


class Caller:
    """Calls the tool in this process, with a library of its own; ``base`` is what the pairing is built on."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str], base: str = "") -> None:
        self.capfd = capfd
        self.library = library(folder / "library", "base:1")
        self.lock = self.library / f"pairings/{NAME}.lock"
        self.base = base

    def __call__(self, *arguments: object, code: int = 0) -> Answer:
        self.capfd.readouterr()
        answer = Answer(run([str(word) for word in arguments]), *self.capfd.readouterr())
        assert answer.code == code, answer.out + answer.err
        return answer


class Tool:
    """``vllm-mods`` in a process of its own, with one library."""

    def __init__(self, library: Path, environ: Mapping[str, str] = {}) -> None:
        self.library = library
        self.environ = {
            **os.environ,
            **environ,
            "VLLM_MODS_LIBRARY": str(library),
            "VLLM_MODS_CACHE": str(library.parent / "cache"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }

    def __call__(
        self, *arguments: object, code: int = 0, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "vllm_mods", *map(str, arguments)],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def json(self, *arguments: object, code: int = 0, **environ: str) -> Any:
        return json.loads(self(*arguments, "--json", code=code, **environ).stdout)

    def lock(self) -> Path:
        return self.library / f"pairings/{NAME}.lock"
