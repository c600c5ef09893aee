"""The programs of docs/library.md, on a small vLLM; and what a checker of types says of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import pages
from mod_making import diff_of, write_mod
from small_site import FILES, build

import vllm_mods as vm

LOADER = "import os\n\n\ndef load(name):\n    return os.path.join('weights', name)\n"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the programs, a small vLLM and a library with one mod that fits, and one that does not."""
    (page,) = (one for one in pages() if one.path == "docs/library.md")
    for block in page.blocks:
        if block.title is not None:
            (tmp_path / block.title).write_text(block.body)
    build(tmp_path / "site", {**FILES, "vllm/loader.py": LOADER.encode()})
    fast = LOADER.replace("weights", "fast")
    write_mod(tmp_path / "mods", "fast", diff_of("vllm/loader.py", LOADER, fast))
    other = LOADER.replace("weights", "other")
    write_mod(tmp_path / "mods", "stale", diff_of("vllm/loader.py", other, fast))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(program: str, *arguments: str) -> list[str]:
    command = [sys.executable, program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_the_bot_answers_for_a_mod_and_a_vllm() -> None:
    assert _run("bot.py", "fast", "site") == ["fast 1.0.0 on vLLM 0.19.1: applies"]
    first, *why = _run("bot.py", "stale", "site")
    assert first == "stale 1.0.0 on vLLM 0.19.1: conflict"
    assert why
    assert _run("bot.py", "slow", "site")[0].startswith("there is no mod named `slow`")


def test_the_notebook_shows_a_plan(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOD", "fast")
    monkeypatch.setenv("TREE", "site")
    names: dict[str, object] = {}
    cells = (programs / "notebook.py").read_text().split("# %%\n")
    for cell in cells:
        exec(compile(cell, "cell", "exec"), names)  # noqa: S102  (as a notebook runs its cells)
    planned = names["planned"]
    assert isinstance(planned, vm.Plan)
    assert "fast 1.0.0: applies" in repr(planned)
    assert repr(planned).count("\n") < 24
    last = cells[-1].strip()
    assert list(eval(last, names)) == ["vllm/loader.py"]  # noqa: S307  (what the last cell shows)


@pytest.mark.slow
def test_a_checker_of_types_finds_nothing_in_them(programs: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    for name in ("bot.py", "notebook.py"):
        done = subprocess.run(
            [*command, name], cwd=programs, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "")
