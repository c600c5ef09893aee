"""A library's repository, the branch of a release in it, and the check that its owner names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_host import commit, git, mod

from vllm_mods.keeping import branches, keeping, run
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from vllm_mods.keeping.branches import LibraryHome

NAME = f"{branches.PREFIX}fast/0.20.0"
KEPT = KeptRelease("fast", "0.20.0", "widened", told=("before",))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "An Author")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "author@example.org")
    commit(tmp_path / "mods", mod("fast") | {"README": "mine\n"})
    return tmp_path / "mods"


def save(home: LibraryHome, name: str, text: str) -> str:
    head = branches.tip(home, "HEAD")
    assert head is not None
    with branches.laid_out(home, head) as place:
        Path(place, "patches/fast/x.py").write_text(text)
        return branches.commit(home, name, head, place, "fast goes on\n")


def test_a_branch_has_the_change_and_nothing_else_of_the_repository_moves(library: Path) -> None:
    before = git(library, "rev-parse", "HEAD")
    home = branches.home(str(library))
    assert branches.tip(home, f"refs/heads/{NAME}") is None
    made = save(home, NAME, "X = 2\n")
    assert branches.tip(home, f"refs/heads/{NAME}") == made
    assert git(library, "diff", "--name-only", "main", NAME) == "patches/fast/x.py"
    assert git(library, "show", f"{NAME}:patches/fast/x.py") == "X = 2"
    assert git(library, "rev-parse", f"{NAME}^") == before == git(library, "rev-parse", "HEAD")
    assert git(library, "status", "--porcelain") == ""
    assert (library / "patches/fast/x.py").read_text() == "X = 1\n"


def test_a_repository_without_a_commit_has_no_tip(tmp_path: Path) -> None:
    (tmp_path / "empty/patches").mkdir(parents=True)
    git(tmp_path / "empty", "init", "-q")
    assert branches.tip(branches.home(str(tmp_path / "empty")), "HEAD") is None


def test_files_of_a_commit_are_those_of_the_library(library: Path) -> None:
    home = branches.home(str(library))
    head = branches.tip(home, "HEAD")
    assert head is not None
    assert "patches/fast/mod.toml" in branches.files(home, head)


@pytest.mark.parametrize(
    ("command", "told", "left"),
    [
        ("true", ("before", "`true` passed"), ()),
        ("echo no; exit 3", ("before",), ("`echo no; exit 3` failed with 3:\nno",)),
    ],
)
def test_what_the_owners_check_says(
    tmp_path: Path, command: str, told: tuple[str, ...], left: tuple[str, ...]
) -> None:
    kept = keeping.check(command, str(tmp_path), KEPT)
    assert (kept.told, kept.left) == (told, left)


def test_the_check_knows_the_library_and_the_release_and_has_no_input(tmp_path: Path) -> None:
    command = 'cat; echo "$VLLM_MODS_LIBRARY $VLLM_MODS_RELEASE $PWD"; exit 1'
    (said,) = keeping.check(command, str(tmp_path), KEPT).left
    assert said.splitlines()[1:] == [f"{tmp_path} 0.20.0 {tmp_path}"]


def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    (said,) = keeping.check("seq 100; exit 1", str(tmp_path), KEPT).left
    assert said.splitlines()[1:] == [str(number) for number in range(81, 101)]


@pytest.mark.slow
def test_a_check_that_does_not_end_is_stopped_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_TEST_SECONDS", 0.3)
    (said,) = keeping.check("sleep 600 & sleep 600", str(tmp_path), KEPT).left
    assert said.endswith("did not end in 0.3 s")


def test_what_is_new_to_a_mod_without_a_lock(library: Path) -> None:
    fast = Library(library).load("fast")
    versions = ("0.19.0", "0.20.0rc1", "0.20.0", "0.21.0")
    assert run.new_to(fast, versions, None) == versions
    assert run.new_to(fast, versions, "0.20.0") == ("0.21.0",)
    assert run.new_to(fast, versions, "0.19.1") == ("0.20.0rc1", "0.20.0", "0.21.0")
    assert run.new_to(fast, versions, "0.21.0") == ()
