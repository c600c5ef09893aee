"""A library in a repository: what git is asked for it, and what it says is asked of nobody else."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import lone_project
import pytest
from git_host import commit, git, mod
from lowering import lower

from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.formats.project import LibrarySource
from vllm_mods.sharing import repositories
from vllm_mods.trees import git_process
from vllm_mods.trees.git_process import GitOutcome

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.sharing.kept import FetchedLibrary

FILES = {path: text.encode() for path, text in mod("fast").items()}


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of three commits, the first two tagged."""
    alice = tmp_path_factory.mktemp("repositories") / "alice"
    commit(alice, mod("fast"), "v1")
    commit(alice, {"patches/fast/x.py": "version https://git-lfs.github.com/spec/v1\n"}, "lfs")
    commit(alice, mod("fast", "2.0.0"))
    return alice


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return lone_project.project(tmp_path, monkeypatch)


def fetch(place: Path, rev: str = "", commit: str | None = None, below: str = "") -> FetchedLibrary:
    return repositories.fetch(LibrarySource("git", "./alice", rev, below), str(place), commit)


@pytest.fixture
def asked_of_git(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What git is asked: the command, with ``--depth=1`` where that is said."""
    real, commands = git_process.run, list[str]()

    def run(folder: str, words: tuple[str, ...], *more: object, **named: object) -> object:
        known = ("ls-remote", "fetch", "--depth=1", "rev-parse")
        commands.append(" ".join(word for word in words if word in known))
        return real(folder, words, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(git_process, "run", run)
    return commands


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rev", "commands"),
    [
        ("", ["fetch --depth=1", "rev-parse"]),
        ("v1", ["fetch --depth=1", "rev-parse"]),
        ("main", ["fetch --depth=1", "rev-parse"]),
        ("SHORT", ["fetch --depth=1", "fetch", "rev-parse"]),
        ("WHOLE", ["fetch --depth=1", "rev-parse"]),
    ],
)
def test_no_more_is_fetched_than_the_commit_where_that_is_known(
    alice: Path, asked_of_git: list[str], rev: str, commands: list[str]
) -> None:
    first = git(alice, "rev-parse", "v1")
    fetched = fetch(alice.parent, rev.replace("SHORT", first[:9]).replace("WHOLE", first))
    newest = git(alice, "rev-parse", "main")
    assert fetched.resolved == (newest if rev in {"", "main"} else first)
    assert asked_of_git[1:] == commands  # behind `init`


@pytest.mark.slow
def test_a_commit_that_is_locked_is_the_one_that_is_fetched(alice: Path) -> None:
    first = git(alice, "rev-parse", "v1")
    fetched = fetch(alice.parent, "main", first)
    assert (fetched.resolved, dict(fetched.files)) == (first, FILES)
    objects = {name: data.partition(b" ")[0] for name, data in fetched.objects.items()}
    assert objects[first] == b"commit"
    assert sorted(objects.values()) == [b"commit", b"tree", b"tree", b"tree"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rev", "locked", "what"),
    [
        ("v9", None, "has no tag, branch or commit v9"),
        ("--since=now", None, "has no tag, branch or commit --since=now"),
        ("v1", "0" * 40, f"has no commit {'0' * 40}"),
    ],
)
def test_what_a_repository_has_not_is_told_with_the_way_to_look(
    alice: Path, rev: str, locked: str | None, what: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fetch(alice.parent, rev, locked)
    assert caught.value.message == f"git+./alice@{rev}: the repository {what}"
    assert caught.value.hint == (
        f"git ls-remote {alice}  # lists its revisions; then edit `rev` and run vllm-mods update"
    )


@pytest.mark.slow
def test_of_a_repository_without_commits_the_newest_is_none(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "alice")
    with pytest.raises(TreeError, match="git fetch failed: fatal: couldn't find remote ref HEAD"):
        fetch(tmp_path)


@pytest.mark.slow
def test_of_a_tag_and_a_branch_of_one_name_the_tag_is_meant(tmp_path: Path) -> None:
    alice = tmp_path / "alice"
    first = commit(alice, mod("fast"), "both")
    git(alice, "branch", "other")
    newest = commit(alice, mod("fast", "2.0.0"))
    git(alice, "branch", "both")
    assert git(alice, "rev-parse", "refs/heads/both") == newest
    assert fetch(tmp_path, "both").resolved == first
    assert fetch(tmp_path, "other").resolved == first
    assert fetch(tmp_path, "refs/heads/both").resolved == newest


@pytest.mark.slow
def test_all_files_of_a_library_have_a_limit(alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = fetch(alice.parent, "v1")
    assert fetched.files == FILES
    objects = (data.partition(b"\0")[2] for data in fetched.objects.values())
    size = sum(map(len, (*objects, *FILES.values())))
    lower(monkeypatch, "LIBRARY", size)
    assert fetch(alice.parent, "v1") == fetched
    lower(monkeypatch, "LIBRARY", size - 1)
    with pytest.raises(TreeError, match="the limit for"):
        fetch(alice.parent, "v1")
    lower(monkeypatch, "LIBRARY", 200)
    with pytest.raises(TreeError, match=r"git\+\./alice@v1: is more than 200 bytes, the limit for"):
        fetch(alice.parent, "v1")


@pytest.mark.slow
def test_a_file_that_is_kept_elsewhere_is_not_asked_for(alice: Path) -> None:
    with pytest.raises(TreeError) as caught:
        fetch(alice.parent, "lfs")
    assert caught.value.message == (
        "git+./alice@lfs: patches/fast/x.py is stored in git-lfs, which vllm-mods does not use"
    )


@pytest.mark.parametrize(
    ("url", "transports"),
    [
        ("/a", "file"),
        ("file:///a", "file"),
        ("http://localhost/a", "http"),
        ("https://h.org/a", "https:ssh"),
        ("ssh://h.org/a", "https:ssh"),
        ("me@h.org:a", "https:ssh"),
    ],
)
def test_a_server_is_asked_by_the_transport_of_its_address_alone(url: str, transports: str) -> None:
    environ = repositories._environment({"PATH": "/bin"}, url, "/scratch")
    assert environ["GIT_ALLOW_PROTOCOL"] == transports
    assert (environ["GIT_DIR"], environ["GIT_TERMINAL_PROMPT"]) == ("/scratch", "0")
    assert environ["SSH_ASKPASS_REQUIRE"] == "never"


def test_what_git_says_is_told_without_the_users_of_addresses_and_their_queries(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = "fatal: 'https://me:secret@h.org/x?token=secret' and ssh://me@h.org/y are not for you"
    monkeypatch.setattr(git_process, "run", lambda *_, **__: GitOutcome(128, b"", says))
    with pytest.raises(TreeError) as caught:
        fetch(place)
    assert caught.value.message == (
        "git+./alice: git init failed: fatal: 'https://…@h.org/x?…' and ssh://…@h.org/y are not for you"
    )
    assert caught.value.hint == (
        "check git's credential helpers and ssh agent: `git ls-remote ./alice` must work; libraries that were fetched before need no network"
    )


def test_what_is_fetched_needs_a_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(Refused) as caught:
        fetch(place)
    why = "cannot be written: No space left on device; nothing was changed"
    assert caught.value.message == f"{tempfile.gettempdir()}/ {why}"
