"""A folder of one's own, in which commands are typed as a user types them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from command_line import Answer
from package_server import settings_of_none

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def typed(
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[..., Answer]:
    """Run a command line in an empty folder, and hold its exit code; a real index is only for tests that need the network."""
    for name in ("VLLM_MODS_LIBRARY", "VLLM_MODS_TARGET", "VLLM_MODS_CONFIG", "WORKSPACE_DIR"):
        monkeypatch.delenv(name, raising=False)
    if request.node.get_closest_marker("network") is None:
        settings_of_none(tmp_path, monkeypatch)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.chdir(tmp_path)

    def do(line: str, *, code: int = 0) -> Answer:
        program, *words = shlex.split(line)
        assert program == "vllm-mods"
        done = run(words)
        answer = Answer(done, *capfd.readouterr())
        assert done == code, f"$ {line}\n{answer.out}{answer.err}"
        return answer

    return do
