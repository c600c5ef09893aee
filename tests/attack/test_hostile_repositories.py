"""A library's repository that would have git run programs, or write where nothing is to be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sampling import few

from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.keeping import branches

NAME = "vllm-mods/fast/0.20.0"
MOD = "patches/fast/mod.toml"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "An Author")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "author@example.org")
    folder = tmp_path / "library"
    (folder / "patches/fast").mkdir(parents=True)
    (folder / MOD).write_text("old\r\n")
    (folder / "run.sh").write_text("exit 0\n")
    (folder / "run.sh").chmod(0o755)
    git(folder, "init", "-q", "-b", "main")
    save(folder)
    return folder


def save(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")


def made(folder: Path, name: str = NAME, message: str = "message\n") -> str:
    """Make a branch on which one file of the mod is another."""
    home = branches.home(str(folder))
    head = branches.tip(home, "HEAD")
    assert head is not None
    with branches.laid_out(home, head) as place:
        Path(place, MOD).write_bytes(b"new\r\n")
        return branches.commit(home, name, head, place, message)


def marker(tmp_path: Path) -> tuple[Path, str]:
    """Return a file that is there when a program was run, and the program."""
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    return ran, str(program)


@pytest.mark.slow
def test_no_program_that_a_repository_names_is_run(library: Path, tmp_path: Path) -> None:
    ran, program = marker(tmp_path)
    for hook in ("reference-transaction", "post-index-change", "post-checkout"):
        (library / ".git/hooks").mkdir(exist_ok=True)
        (library / ".git/hooks" / hook).symlink_to(program)
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "gpg.program"):
        git(library, "config", key, program)
    git(library, "config", "alias.read-tree", f"!{program}")
    git(library, "config", "commit.gpgSign", "true")
    (library / ".git/info").mkdir(exist_ok=True)
    (library / ".git/info/attributes").write_text("run.sh filter=evil\n")
    made(library)
    assert not ran.exists()
    assert git(library, "diff", "--no-ext-diff", "--name-only", "main", NAME) == MOD


@pytest.mark.slow
def test_line_ends_modes_and_other_entries_stay_as_the_commit_has_them(library: Path) -> None:
    (library / ".gitattributes").write_text("* text=auto eol=crlf\n")
    (library / "link").symlink_to("run.sh")
    save(library)
    made(library)
    assert git(library, "diff", "--name-only", "main", NAME) == MOD
    shown = subprocess.run(
        ["git", "-C", library, "cat-file", "blob", f"{NAME}:{MOD}"], capture_output=True, check=True
    )
    assert shown.stdout == b"new\r\n"
    assert git(library, "ls-tree", NAME, "run.sh").startswith("100755")
    assert git(library, "ls-tree", NAME, "link").startswith("120000")


@pytest.mark.slow
def test_a_link_out_of_the_library_is_not_written_through(library: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (library / "patches/evil").symlink_to(elsewhere)
    save(library)
    with pytest.raises(Refused, match="patches/evil is a link or a submodule"):
        made(library)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
def test_what_a_hook_of_another_repository_has_in_its_environment_is_not_used(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    found = made(library)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert git(library, "rev-parse", NAME) == found
    assert not (other / ".git/index").exists()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["vllm-mods", "vllm-mods/fast", f"{NAME}/more", NAME])
def test_a_branch_in_the_way_is_named(library: Path, name: str) -> None:
    git(library, "branch", name)
    before = git(library, "for-each-ref")
    with pytest.raises(Refused) as error:
        made(library)
    assert "branch --list 'vllm-mods*'" in (error.value.hint or "")
    assert git(library, "for-each-ref") == before


def test_a_repository_that_git_does_not_read_is_not_one_without_commits(library: Path) -> None:
    home = branches.home(str(library))
    (library / ".git/HEAD").write_text("nonsense\n")
    with pytest.raises(Refused, match="HEAD cannot be read"):
        branches.tip(home, "HEAD")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["vllm-mods/a..b/0.20.0", "vllm-mods/a.lock/0.20.0", "vllm-mods/a./x"]
)
def test_a_name_that_no_branch_has_is_known_before(library: Path, name: str) -> None:
    home = branches.home(str(library))
    assert branches.is_name(home, NAME)
    assert branches.is_name(home, name) is (name == "vllm-mods/a./x")


@pytest.mark.slow
def test_worktrees_detached_heads_and_shallow_clones(library: Path, tmp_path: Path) -> None:
    git(library, "commit", "-q", "--allow-empty", "-m", "second")
    git(library, "worktree", "add", "-q", "--detach", str(tmp_path / "beside"))
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{library}", "shallow")
    for folder in (tmp_path / "beside", tmp_path / "shallow"):
        found = made(folder)
        assert git(folder, "rev-parse", NAME) == found
        assert git(folder, "status", "--porcelain") == ""
        assert git(folder, "diff", "--name-only", "HEAD", NAME) == MOD


@pytest.mark.slow
def test_a_message_longer_than_an_argument_can_be(library: Path) -> None:
    made(library, message="first\n\n" + "x" * 300_000)
    assert len(git(library, "log", "-1", "--format=%B", NAME)) > 300_000


@pytest.mark.slow
def test_killed_at_any_moment_there_is_the_whole_branch_or_none(library: Path) -> None:
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from attack import test_hostile_repositories as one\n"
        "one.made(pathlib.Path(sys.argv[1]))\n"
    )
    before = git(library, "status", "--porcelain"), git(library, "rev-parse", "HEAD")
    tests = str(Path(__file__).parents[1])
    seen = set()
    for wait in (0.0, *few((0.3, 0.35, 0.4, 0.45, 0.5, 0.6), 2, "killed"), 3.0):
        with subprocess.Popen([sys.executable, "-c", code, str(library), tests]) as child:
            try:
                child.wait(wait)
            except subprocess.TimeoutExpired:
                os.kill(child.pid, signal.SIGKILL)
        there = git(library, "branch", "--list", NAME)
        seen.add(bool(there))
        if there:
            assert git(library, "diff", "--name-only", "main", NAME) == MOD
            git(library, "branch", "-qD", NAME)
        assert (git(library, "status", "--porcelain"), git(library, "rev-parse", "HEAD")) == before
        git(library, "fsck", "--strict")
    assert False in seen


@pytest.mark.slow
def test_a_mod_in_a_submodule_is_refused(library: Path) -> None:
    head = git(library, "rev-parse", "HEAD")
    git(library, "update-index", "--add", "--cacheinfo", f"160000,{head},patches/other")
    git(library, "commit", "-qm", "submodule")
    with pytest.raises(VllmModsError, match="patches/other is a link or a submodule"):
        made(library)
