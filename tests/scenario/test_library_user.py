"""Who uses a library of others: pinned, put in, changed under him, updated, and taken out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES
from doc_commands import small_release
from git_host import commit, git, mod
from small_site import build, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Typed = Callable[..., Answer]

pytestmark = pytest.mark.slow  # git is run


def live_with_a_library(typed: Typed, folder: Path, site: Path) -> None:
    """Add, sync, see the library change, update, remove; the vLLM holds what the lock has, and in the end nothing."""
    alice, module = folder / "alice", site / "vllm/tiny.py"
    before = snapshot(site)
    commit(alice, mod("tiny"), tag="v1")
    added = typed("vllm-mods add git+./alice@v1 --mod tiny")
    assert "tiny 1.0.0" in added.out
    assert snapshot(site) == before
    typed(f"vllm-mods sync --target {site}")
    assert module.read_text() == "X = 1\n"
    assert (
        "exactly the wanted mods are applied"
        in typed(f"vllm-mods sync --check --target {site}").out
    )

    # Alice moves her tag to another text; what is locked stays
    commit(alice, mod("tiny", "1.1.0", text="X = 2\n"), tag="v1")
    assert "exactly the wanted mods are applied" in typed(f"vllm-mods sync --target {site}").out
    assert module.read_text() == "X = 1\n"
    tried = typed("vllm-mods update --dry-run")
    assert "tiny 1.0.0" in tried.out
    assert "1.1.0" in tried.out
    typed("vllm-mods update")
    assert "tiny" in typed(f"vllm-mods sync --check --target {site}", code=1).out
    typed(f"vllm-mods sync --target {site}")
    assert module.read_text() == "X = 2\n"

    typed("vllm-mods remove alice")
    typed(f"vllm-mods sync --target {site}")
    assert not module.exists()
    assert snapshot(site) == before


def test_a_library_is_added_followed_and_removed(typed: Typed, tmp_path: Path) -> None:
    live_with_a_library(typed, tmp_path, build(tmp_path / "env", FILES))


def test_on_another_machine_a_commit_that_is_gone_changes_nothing(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock travels, the cache does not, and Alice has written her history anew."""
    site = build(tmp_path / "env", FILES)
    alice = tmp_path / "alice"
    commit(alice, mod("tiny"), tag="v1")
    typed("vllm-mods add git+./alice@v1 --mod tiny")
    before = snapshot(site)
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "another"))
    git(alice, "checkout", "-q", "--orphan", "anew")
    commit(alice, mod("tiny", text="X = 3\n"), tag="v1")
    git(alice, "branch", "-D", "main")
    git(alice, "reflog", "expire", "--expire=now", "--all")
    git(alice, "gc", "-q", "--prune=now")
    for line in ("vllm-mods sync --fetch", f"vllm-mods sync --target {site}"):
        gone = typed(line, code=2)
        assert "alice" in gone.err
        assert "hint: " in gone.err
    assert snapshot(site) == before


@pytest.mark.network
def test_a_library_in_a_real_release(typed: Typed, tmp_path: Path) -> None:
    live_with_a_library(typed, tmp_path, small_release(tmp_path / "env"))
