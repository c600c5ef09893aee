"""Git run within limits: what it printed, whole, or why there is nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lowering import lower

from vllm_mods.base import limits
from vllm_mods.trees import git_process

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def printed(folder: Path, *words: str) -> tuple[bytes, str]:
    most, seconds = limits.CLONE, limits.CLONE_SECONDS
    return git_process.run(str(folder), words, os.environ, most=most, seconds=seconds)


def test_what_git_prints_is_had_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, why = printed(tmp_path, "version")
    assert whole.startswith(b"git version ")
    assert not why
    lower(monkeypatch, "PAGE", len(whole))
    assert printed(tmp_path, "version") == (whole, "")
    lower(monkeypatch, "PAGE", len(whole) - 1)
    assert printed(tmp_path, "version") == (b"", f"it prints more than {limits.PAGE}")


def test_what_git_says_of_its_failure_is_handed_on(tmp_path: Path) -> None:
    out, why = printed(tmp_path, "no-such-command")
    assert not out
    assert "no-such-command" in why
