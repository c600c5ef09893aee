"""An apply that was killed leaves nothing behind that a later one would take for its own."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import faults
import pytest
from mod_making import diff_of, write_mod
from small_site import FILES, build

from vllm_mods.cli import run
from vllm_mods.site import journal

if TYPE_CHECKING:
    from pathlib import Path

A = FILES["vllm/a.py"].decode()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Make a library with a mod that brings a chat template beside its patch."""
    folder = tmp_path / "library"
    write_mod(folder, "chat", diff_of("vllm/a.py", A, A.replace("1", "2")))
    manifest = folder / "patches/chat/mod.toml"
    manifest.write_text(manifest.read_text() + 'templates = [{ name = "t", file = "t.jinja" }]\n')
    (folder / "templates/t").mkdir(parents=True)
    (folder / "templates/t/template.jinja").write_text("{{ messages }}")
    return folder


def test_the_workspace_of_an_apply_that_was_undone_is_not_that_of_the_next(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when the receipt is in its place and the journal, by which all of it is undone, still there."""
    monkeypatch.delenv("WORKSPACE_DIR", raising=False)
    site = build(tmp_path / "site")
    first = tmp_path / "w1"
    first.mkdir()
    line = ["apply", "chat", "--library", str(library), "--target", str(site)]

    def killed() -> None:
        monkeypatch.setattr(journal, "finish", lambda *_: faults.kill())
        run([*line, "--workspace", str(first)])

    assert faults.in_child(killed) == -signal.SIGKILL
    assert (site / ".vllm-mods/receipt.json").exists()
    assert (first / "t.jinja").exists()
    assert run(line) == 0
    assert (site / ".vllm-mods/templates/t.jinja").exists()
    assert not list(first.iterdir())
