"""A library's repository, and the branch of a release in it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from git_host import commit, git, mod

from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.keeping import branches, keeping
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.library.catalog import Library
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from vllm_mods.keeping.branches import LibraryHome

NAME = f"{branches.PREFIX}fast/0.20.0"
FETCH = "git fetch NAME '+refs/heads/vllm-mods/*:refs/heads/vllm-mods/*'"
RIGHTS = "the token needs the right to push (GitHub: contents: write; GitLab: write_repository; Gitea: write:repository)"


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_repository_without_a_commit_has_no_tip(tmp_path: Path) -> None:
    (tmp_path / "empty/patches").mkdir(parents=True)
    git(tmp_path / "empty", "init", "-q")
    assert branches.tip(branches.home(str(tmp_path / "empty")), "HEAD") is None


@pytest.mark.slow
def test_files_of_a_commit_are_those_of_the_library(library: Path) -> None:
    home = branches.home(str(library))
    head = branches.tip(home, "HEAD")
    assert head is not None
    assert "patches/fast/mod.toml" in branches.files(home, head)


@pytest.mark.slow
def test_a_library_below_the_top_has_its_own_files_alone(library: Path) -> None:
    home = branches.home(str(library / "patches"))
    assert (home.path, home.prefix) == ("patches", "patches/")
    assert branches.home(str(library)).prefix == ""
    head = commit(library, {"run.sh": "x\n"})
    assert sorted(branches.files(home, head)) == ["fast/mod.toml", "fast/x.py"]
    with branches.laid_out(home, head) as place:
        assert sorted(os.listdir(Path(place, "fast"))) == ["mod.toml", "x.py"]
        Path(place, "fast/x.py").unlink()
        Path(place, "new.py").write_text("Y = 1\n")
        branches.commit(home, NAME, head, place, "less\n")
    changed = git(library, "diff", "--name-status", head, NAME).splitlines()
    assert changed == ["D\tpatches/fast/x.py", "A\tpatches/new.py"]


@pytest.mark.slow
def test_what_can_be_run_stays_so_and_links_stay_out_of_the_scratch_folder(library: Path) -> None:
    script = library / "run.sh"
    script.write_text("x\n")
    script.chmod(0o755)
    (library / "link").symlink_to("README")
    head = commit(library, {})
    home = branches.home(str(library))
    with branches.laid_out(home, head) as place:
        assert sorted(os.listdir(place)) == ["README", "patches", "run.sh"]
        assert os.access(Path(place, "run.sh"), os.X_OK)
        assert not os.access(Path(place, "README"), os.X_OK)
        Path(place, "run.sh").write_text("y\n")
        branches.commit(home, NAME, head, place, "more\n")
    assert not Path(place).exists()
    assert git(library, "diff", "--summary", head, NAME) == ""  # no mode, none removed
    assert git(library, "diff", "--name-only", head, NAME) == "run.sh"


@pytest.mark.slow
def test_a_link_among_the_files_of_mods_is_refused(library: Path) -> None:
    (library / "patches/fast/y.py").symlink_to("x.py")
    head = commit(library, {})
    with pytest.raises(Refused) as caught, branches.laid_out(branches.home(str(library)), head):
        pass
    path = "patches/fast/y.py"
    assert caught.value.message == f"{path} is a link or a submodule, which `keep` does not read"
    assert caught.value.hint == f"replace it by the files themselves, then git add {path}"


@pytest.mark.slow
def test_a_commit_that_lacks_the_library_is_refused(library: Path) -> None:
    (library / "other").mkdir()
    head = git(library, "rev-parse", "HEAD")
    with (
        pytest.raises(Refused) as caught,
        branches.laid_out(branches.home(str(library / "other")), head),
    ):
        pass
    assert caught.value.message == f"the commit {head[:12]} does not contain the library other"
    assert caught.value.hint == "git log --stat -- other"


@pytest.mark.slow
def test_a_branch_that_is_there_by_now_is_not_moved(library: Path) -> None:
    home = branches.home(str(library))
    first = save(home, NAME, "X = 2\n")
    with pytest.raises(Refused, match=f"the branch {NAME} could not be made"):
        save(home, NAME, "X = 3\n")
    assert branches.tip(home, NAME) == first


@pytest.mark.slow
def test_names_that_lead_out_of_a_commit_are_refused(library: Path) -> None:
    blob = git(library, "rev-parse", "HEAD:README")
    words = ("hash-object", "-t", "tree", "-w", "--literally", "--stdin")
    row = b"100644 ..\0" + bytes.fromhex(blob)
    done = subprocess.run(
        ["git", "-C", library, *words], input=row, capture_output=True, check=True
    )
    head = git(library, "commit-tree", done.stdout.decode().strip(), "-m", "x")
    with pytest.raises(TreeError):
        branches.files(branches.home(str(library)), head)


@pytest.mark.slow
def test_a_repository_of_somebody_else_is_kept_up_too(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    home = branches.home(str(library))
    assert branches.tip(home, save(home, NAME, "X = 2\n")) == branches.tip(home, NAME)


@pytest.mark.slow
def test_a_repository_that_git_does_not_read_is_refused(library: Path) -> None:
    home = branches.home(str(library))
    (library / ".git/config").write_text("[")
    with pytest.raises(Refused, match="HEAD cannot be read: "):
        branches.tip(home, "HEAD")


def test_a_repository_without_a_working_tree_is_no_home(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    with pytest.raises(UsageError, match="is not in the working tree of a git repository"):
        branches.home(str(tmp_path / "bare.git"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("why", "hint"),
    [
        ("empty ident name", "git config user.name NAME; git config user.email ADDRESS"),
        ("Permission denied", "ls -ld {0}/.git"),
        ("permission denied", "ls -ld {0}/.git"),
        ("Read-only file system", "ls -ld {0}/.git"),
        ("read-only", "ls -ld {0}/.git"),
        (
            "! [rejected] x (stale info)",
            f"{FETCH}  # replaces your branches with those of the remote; then run keep again",
        ),
        ("! [remote rejected] x (protected branch)", RIGHTS),
        ("fatal: unable to access 'https://x.test/': 403", RIGHTS),
        ("exists", "git -C {0} branch --list 'vllm-mods*'"),
    ],
)
def test_what_git_says_leads_to_the_command_that_helps(library: Path, why: str, hint: str) -> None:
    refused = branches.home(str(library)).refused("no branch", why)
    assert (refused.message, refused.hint) == (f"no branch: {why}", hint.format(library))


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
    home = branches.home(str(library))
    at = branches.tip(home, "HEAD") or ""
    found = keeping.run(home, at, mod, names, NoReleases(), message=lambda kept: f"{kept.did}\n")
    return list(found)


@pytest.mark.slow
def test_a_release_that_cannot_be_read_holds_up_the_newer_ones(library: Path) -> None:
    name = f"{branches.PREFIX}fast/0.19.0"
    why = ("0.19.0 cannot be read", "later releases wait: 0.20.0")
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
    why = (f"the port on {NAME} is not finished", "later releases wait: 0.21.0")
    assert waiting == KeptRelease("fast", "0.20.0", "waits", left=why, branch=NAME, commit=made)


@pytest.mark.slow
def test_a_name_that_no_branch_can_have_is_told(library: Path) -> None:
    (stuck,) = keep(library, "0.20.0", mod="fast..er")
    assert (stuck.did, stuck.commit) == ("stuck", None)
    assert stuck.left == (
        f"no branch can be named {branches.PREFIX}fast..er/0.20.0: rename the mod",
    )
