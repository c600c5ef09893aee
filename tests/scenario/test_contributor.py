"""A contributor to vLLM asks what a change breaks before it is merged; then one of two people mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER, Answer, write_library
from histories import git, grow

from vllm_mods.cli import run

if TYPE_CHECKING:
    from pathlib import Path

# a line that the mod `fast` has as context is written otherwise
CHANGED = LOADER.replace("class Loader:", "class Loader(object):")


@pytest.mark.slow
def test_a_change_is_seen_to_break_a_mod_and_is_mended_either_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def matrix(*arguments: str) -> Answer:
        code = run(["matrix", "--against", "main..work", "--library", "../mods", *arguments])
        return Answer(code, *capfd.readouterr())

    clone = tmp_path / "vllm"
    clone.mkdir()
    grow(clone, ("Release", {path: data.decode() for path, data in FILES.items()}))
    git(clone, "tag", "v0.20.0")
    write_library(tmp_path / "mods")
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(clone)

    # a pull request: two commits, one of which touches the loader; main goes on meanwhile
    git(clone, "checkout", "-q", "-b", "work")
    (clone / "vllm/a.py").write_text("A = 2\n")
    git(clone, "commit", "-qam", "A is two")
    (clone / "vllm/loader.py").write_text(CHANGED)
    git(clone, "commit", "-qam", "[Loader] Names may be paths")
    git(clone, "checkout", "-q", "main")
    (clone / "vllm/other.py").write_text("LIMIT = 3\n")
    git(clone, "commit", "-qam", "Another limit, elsewhere")
    git(clone, "checkout", "-q", "work")

    before = git(clone, "status", "--porcelain=v2", "--branch")
    broken = matrix()
    assert broken.code == 1
    assert "\n  fast 1.0.0: applies, then conflict\n" in broken.out
    assert "\n    vLLM changed vllm/loader.py:4, where hunk 1 of x.patch belongs\n" in broken.out
    assert f"\n      commit {git(clone, 'rev-parse', 'work')[:12]} " in broken.out
    assert broken.out.endswith("\n1 mod got worse; nothing breaks for 1 mod.\n")
    assert "work lacks commits of main" in broken.err
    annotation = matrix("--format", "github").out.splitlines()[0]
    assert annotation.startswith(
        "::error file=vllm/loader.py,line=4,title=fast 1.0.0%3A conflict::"
    )
    assert git(clone, "status", "--porcelain=v2", "--branch") == before

    # either the contributor takes it back,
    (clone / "vllm/loader.py").write_text(LOADER)
    git(clone, "commit", "-qam", "Take it back")
    mended = matrix()
    fork = git(clone, "rev-parse", "v0.20.0")[:12]
    nothing = f"git:.@{fork} to git:.@work\n\nNothing breaks for 2 mods.\n"
    assert (mended.code, mended.out) == (0, nothing)

    # or the change stays as it is, and the mod's author carries the mod over
    git(clone, "reset", "-q", "--hard", "work~1")
    trees = ("--from", "git:.@v0.20.0", "--to", "git:.@work")
    assert run(["port", "fast", *trees, "--library", "../mods"]) == 0
    capfd.readouterr()
    assert matrix().out == mended.out
