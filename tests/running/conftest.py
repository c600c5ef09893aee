"""Engines that are scripts, for the tests of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scripted_engine import Program

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "cat", "sed"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.fixture
def docker(folder: Path) -> Program:
    return Program(folder, "docker")
