"""A repository of upstream's that would have git run programs, read what is not there, or hold up a port."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from histories import git, grow

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, VllmModsError
from vllm_mods.trees.git import Repository
from vllm_mods.trees.history import Upstream

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
    upstream = Upstream(str(folder))
    return upstream.repository.line(upstream.release("0.19.1"), upstream.release("0.20.0"))


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
    assert Upstream(str(hostile)).repository.read(commit.sha, "vllm/loading.py")
    assert Upstream(str(hostile)).build() is None
    assert not ran.exists()


@pytest.mark.parametrize(
    "version", ["--upload-pack=x", "-h", "..", "x y", "0.1\n", "0.1\0", "@{-1}"]
)
def test_a_version_is_no_option_and_no_revision_of_another_kind(
    hostile: Path, version: str
) -> None:
    with pytest.raises((UsageError, VllmModsError)):
        Upstream(str(hostile)).release(version)


def test_a_branch_named_as_a_tag_is_not_the_release(hostile: Path) -> None:
    git(hostile, "branch", "v0.21.0", "HEAD~1")
    with pytest.raises(UsageError, match="has no revision"):
        Upstream(str(hostile)).release("0.21.0")


def test_links_and_submodules_are_no_files_and_no_homes(hostile: Path) -> None:
    old = git(hostile, "rev-parse", "HEAD")
    (hostile / "vllm/loading.py").unlink()
    (hostile / "vllm/linked.py").symlink_to("/etc/passwd")
    git(hostile, "add", "-A")
    git(hostile, "update-index", "--add", "--cacheinfo", f"160000,{old},vllm/sub.py")
    git(hostile, "commit", "-qm", "three")
    repository = Repository(str(hostile))
    new = repository.commit("HEAD")
    assert repository.read(new, "vllm/linked.py") is None
    assert repository.read(new, "vllm/sub.py") is None
    with pytest.raises(TreeError, match="outside repository"):
        repository.read(new, "../../etc/passwd")


def test_a_file_beyond_all_measure_is_refused_and_not_read(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hostile / "vllm/loading.py").write_bytes(BODY.encode() + b"#" * 4096)
    git(hostile, "commit", "-qam", "three")
    monkeypatch.setattr(limits, "UNPACKED_FILE", limits.Limit(1024, "a test's", "bytes"))
    repository = Repository(str(hostile))
    with pytest.raises(VllmModsError, match=r"loading\.py"):
        repository.read(repository.commit("HEAD"), "vllm/loading.py")


def test_another_repository_in_the_environment_is_not_asked(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", other], check=True)
    monkeypatch.setenv("GIT_DIR", os.fspath(other / ".git"))
    assert len(commits(hostile)) == 1
