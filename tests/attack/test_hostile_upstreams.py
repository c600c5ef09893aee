"""A repository of upstream's that would have git run programs, read what is not there, or hold up a port."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from histories import git, grow

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, VllmModsError
from vllm_mods.trees.git import Repository, newest_build

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.trees.git import Commit

BODY = "class Loader:\n    def load(self):\n        first = 1\n        return first\n"
STEPS: tuple[tuple[str, dict[str, str | None]], ...] = (
    ("one", {"vllm/__init__.py": "", "vllm/loader.py": BODY, ".gitattributes": "*.py diff=evil\n"}),
    ("two (#2)", {"vllm/loader.py": None, "vllm/loading.py": BODY + "\n"}),
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "upstream"
    folder.mkdir()
    grow(folder, *STEPS)
    git(folder, "tag", "v0.19.1", "HEAD~1")
    git(folder, "tag", "v0.20.0", "HEAD")
    return folder


def commits(folder: Path) -> tuple[Commit, ...]:
    """Return what upstream did between the two releases."""
    repository = Repository(str(folder))
    return repository.line(repository.commit("v0.19.1"), repository.commit("v0.20.0"))


@pytest.mark.slow
def test_no_program_that_the_repository_names_is_run(hostile: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    for key in (
        *(
            "core.fsmonitor",
            "core.pager",
            "pager.log",
            "pager.diff",
            "pager.diff-tree",
            "core.editor",
        ),
        *("diff.external", "diff.evil.command", "diff.evil.textconv", "core.sshCommand"),
        *("gpg.program", "core.askPass", "core.alternateRefsCommand", "uploadpack.packObjectsHook"),
        *(
            "filter.evil.clean",
            "filter.evil.smudge",
            "alias.log",
            "alias.diff-tree",
            "alias.ls-tree",
        ),
    ):
        git(hostile, "config", key, f"!{program}" if key.startswith("alias") else str(program))
    git(hostile, "config", "log.showSignature", "true")
    git(hostile, "config", "diff.renames", "false")
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (hostile / ".git/hooks").mkdir(exist_ok=True)
        (hostile / ".git/hooks" / hook).symlink_to(program)
    (commit,) = commits(hostile)
    assert (sorted(commit.paths), commit.pull_request) == (["vllm/loader.py", "vllm/loading.py"], 2)
    assert Repository(str(hostile)).tree(commit.sha).read("vllm/loading.py")
    assert newest_build(str(hostile)) is None
    assert not ran.exists()


def test_links_and_submodules_are_no_files_and_no_homes(hostile: Path) -> None:
    old = git(hostile, "rev-parse", "HEAD")
    (hostile / "vllm/loading.py").unlink()
    (hostile / "vllm/linked.py").symlink_to("/etc/passwd")
    git(hostile, "add", "-A")
    git(hostile, "update-index", "--add", "--cacheinfo", f"160000,{old},vllm/sub.py")
    git(hostile, "commit", "-qm", "three")
    repository = Repository(str(hostile))
    tree = repository.tree(repository.commit("HEAD"))
    for path, what in (
        ("vllm/linked.py", "is a symbolic link"),
        ("vllm/sub.py", "is a submodule"),
        ("../../etc/passwd", "points outside the tree"),
    ):
        with pytest.raises(TreeError, match=what):
            tree.read(path)


@pytest.mark.slow
def test_a_file_beyond_all_measure_is_refused_and_not_read(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hostile / "vllm/loading.py").write_bytes(BODY.encode() + b"#" * 4096)
    git(hostile, "commit", "-qam", "three")
    monkeypatch.setattr(limits, "UNPACKED_FILE", limits.Limit(1024, "a test's", "bytes"))
    repository = Repository(str(hostile))
    with pytest.raises(VllmModsError, match=r"loading\.py"):
        repository.tree(repository.commit("HEAD")).read("vllm/loading.py")


@pytest.mark.slow
def test_another_repository_in_the_environment_is_not_asked(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", other], check=True)
    monkeypatch.setenv("GIT_DIR", os.fspath(other / ".git"))
    assert len(commits(hostile)) == 1
