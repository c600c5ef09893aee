"""A small installed vLLM, a library of two mods that fit it, and a command line in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typed_hints
from command_line import FILES, Answer, write_library
from small_site import build

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site", FILES)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return write_library(tmp_path / "library")


@pytest.fixture
def call(
    capfd: pytest.CaptureFixture[str],
    library: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., Answer]:
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(library))
    for name in ("WORKSPACE_DIR", "SOURCE_DATE_EPOCH"):
        monkeypatch.delenv(name, raising=False)

    def do(*arguments: object) -> Answer:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        typed_hints.check(err, tmp_path, capfd.readouterr)
        capfd.readouterr()
        return Answer(code, out, err)

    return do
