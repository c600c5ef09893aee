"""A library's repository, and the branch of a release in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from git_host import commit, git, mod

from vllm_mods.base.errors import ManifestError, TreeError
from vllm_mods.keeping import branches, keeping
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.library.catalog import Library
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from vllm_mods.keeping.branches import LibraryHome

NAME = f"{branches.PREFIX}fast/0.20.0"


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


def test_what_is_new_to_a_mod_without_a_lock(library: Path) -> None:
    fast = Library(library).load("fast")
    versions = ("0.19.0", "0.20.0rc1", "0.20.0", "0.21.0")
    assert keeping.new_to(fast, versions, None) == versions
    assert keeping.new_to(fast, versions, "0.20.0") == ("0.21.0",)
    assert keeping.new_to(fast, versions, "0.19.1") == ("0.20.0rc1", "0.20.0", "0.21.0")
    assert keeping.new_to(fast, versions, "0.21.0") == ()


class NoReleases(Releases):
    """An index of which nothing can be read."""

    def __init__(self) -> None:
        """Ask nobody."""

    def open(self, name: str, **_: object) -> NoReturn:
        raise TreeError(f"{name} cannot be read", hint="ask again")


def keep(library: Path, *names: str, mod: str = "fast") -> list[KeptRelease]:
    return list(keeping.run(str(library), mod, names, NoReleases(), lambda kept: f"{kept.did}\n"))


@pytest.mark.slow
def test_a_release_that_cannot_be_read_holds_up_the_newer_ones(library: Path) -> None:
    name = f"{branches.PREFIX}fast/0.19.0"
    why = ("0.19.0 cannot be read",)
    stuck = KeptRelease("fast", "0.19.0", "stuck", left=why, branch=name)
    assert keep(library, "0.20.0", "0.19.0") == [stuck]


@pytest.mark.slow
def test_a_branch_that_is_finished_is_gone_on_from(library: Path) -> None:
    made = save(branches.home(str(library)), NAME, "X = 2\n")
    first, second = keep(library, "0.20.0", "0.21.0")
    assert first == KeptRelease("fast", "0.20.0", "there", branch=NAME, commit=made)
    assert (second.release, second.did) == ("0.21.0", "stuck")


@pytest.mark.slow
def test_a_port_that_is_not_finished_holds_up_the_newer_ones(library: Path) -> None:
    home = branches.home(str(library))
    head = branches.tip(home, "HEAD")
    assert head is not None
    with branches.laid_out(home, head) as place:
        unfinished = Path(place, "patches/fast/.port-0.20.0/vllm/x.py")
        unfinished.parent.mkdir(parents=True)
        unfinished.write_text("X = 1\n")
        made = branches.commit(home, NAME, head, place, "left\n")
    (waiting,) = keep(library, "0.20.0", "0.21.0")
    assert (waiting.did, waiting.branch, waiting.commit) == ("waits", NAME, made)
    assert NAME in waiting.left[0]


def test_a_name_that_no_branch_can_have_is_told(library: Path) -> None:
    (stuck,) = keep(library, "0.20.0", mod="fast..er")
    assert (stuck.did, stuck.commit) == ("stuck", None)
    assert stuck.left == (
        f"no branch can be called {branches.PREFIX}fast..er/0.20.0: give the mod another name",
    )


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty/patches").mkdir(parents=True)
    git(tmp_path / "empty", "init", "-q")
    with pytest.raises(ManifestError, match="has no commit yet") as caught:
        keep(tmp_path / "empty", "0.20.0")
    assert caught.value.hint == "git commit"
