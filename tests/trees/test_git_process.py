"""Git run within limits: what it printed, whole, or why there is nothing."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.trees import git_process
from vllm_mods.trees.git import Repository
from vllm_mods.trees.git_process import GitOutcome

if TYPE_CHECKING:
    from pathlib import Path


def run(folder: Path, *words: str) -> GitOutcome:
    return git_process.run(str(folder), words, git_process.environment(os.environ))


@pytest.mark.slow
def test_what_git_prints_is_had_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path, "version")
    assert whole.out.startswith(b"git version ")
    assert not whole.why
    lower(monkeypatch, "GIT_OUTPUT", len(whole.out))
    assert run(tmp_path, "version") == whole
    lower(monkeypatch, "GIT_OUTPUT", len(whole.out) - 1)
    cut = run(tmp_path, "version")
    assert (cut.out, cut.why) == (b"", f"it prints more than {limits.GIT_OUTPUT}")


def test_what_git_says_of_its_failure_is_handed_on(tmp_path: Path) -> None:
    done = run(tmp_path, "no-such-command")
    assert not done.out
    assert done.code == 1
    assert "no-such-command" in done.why


@pytest.mark.slow
def test_a_repository_of_ten_thousand_million_files_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str, given: str = "") -> str:
        command = ["git", "-C", str(tmp_path), *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    kind, below = "100644 blob", git("hash-object", "-w", "--stdin")
    for _ in range(10):
        rows = "".join(f"{kind} {below}\t{number}\n" for number in range(10))
        kind, below = "040000 tree", git("mktree", given=rows)
    who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    commit = git(*who, "commit-tree", below, "-m", "all")
    lower(monkeypatch, "GIT_OUTPUT", 4 << 20)
    started = time.monotonic()
    with pytest.raises(TreeError, match="it prints more than 4 MiB"):
        Repository(str(tmp_path)).entries(commit)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("alone", [False, True])
def test_nothing_of_another_repository_is_in_the_environment(*, alone: bool) -> None:
    hooks = {"GIT_DIR": "/x", "GIT_INDEX_FILE": "/x/index", "GIT_CONFIG_PARAMETERS": "'a.b=c'"}
    mine = {"GIT_AUTHOR_NAME": "me", "GIT_CONFIG_GLOBAL": "/home/me/other", "PATH": "/bin"}
    made = git_process.environment({**hooks, **mine}, alone=alone)
    assert not hooks.keys() & made.keys()
    assert made["PATH"] == "/bin"
    assert ("GIT_AUTHOR_NAME" in made) is not alone
    assert made["GIT_CONFIG_GLOBAL"] == (os.devnull if alone else "/home/me/other")


def test_what_the_user_sets_by_the_environment_comes_before_what_is_safe() -> None:
    user = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath"}
    made = git_process.environment({**user, "GIT_CONFIG_VALUE_0": "/hooks"})
    count = int(made["GIT_CONFIG_COUNT"])
    pairs = [(made[f"GIT_CONFIG_KEY_{n}"], made[f"GIT_CONFIG_VALUE_{n}"]) for n in range(count)]
    assert pairs[0] == ("core.hooksPath", "/hooks")
    assert dict(pairs)["core.hooksPath"] == os.devnull
    assert dict(pairs)["credential.helper"] == ""
