"""The remote of a library: which one it is, what is fetched of it, and that nothing but our branches is pushed, to it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import forge_server
import pytest
from forge_server import TOKEN, ForgeServer
from git_host import commit, git, mod

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.keeping import branches
from vllm_mods.keeping.pull_requests import Remote, find_url, open_remote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BRANCH = f"{branches.PREFIX}fast/0.20.0"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[ForgeServer]:
    """A forge with a library, and a clone of it in ``mods``."""
    with forge_server.serving("github", tmp_path / "forge") as running:
        commit(tmp_path / "mods", mod("fast"))
        git(tmp_path / "mods", "push", "-q", str(running.repository), "main")
        git(tmp_path / "mods", "remote", "add", "origin", running.remote)
        yield running


def opened(forge: ForgeServer, folder: Path) -> Remote:
    return open_remote(str(folder / "mods"), forge.remote, TOKEN)


def test_it_is_the_only_remote_or_the_one_that_is_named(tmp_path: Path) -> None:
    commit(tmp_path, mod("fast"))
    home = branches.home(str(tmp_path))
    with pytest.raises(UsageError, match="has no remote; pull requests need") as caught:
        find_url(home, None)
    assert caught.value.hint == "git remote add origin URL"
    git(tmp_path, "remote", "add", "one", "https://github.com/us/mods")
    assert find_url(home, None) == "https://github.com/us/mods"
    git(tmp_path, "remote", "add", "two", "https://github.com/them/mods")
    assert find_url(home, "two") == "https://github.com/them/mods"
    for name in (None, "three"):
        with pytest.raises(UsageError, match="has the remotes one, two; pull") as caught:
            find_url(home, name)
        assert caught.value.hint == "--remote one"
    git(tmp_path, "remote", "set-url", "--push", "two", "https://github.com/us/pushed")
    assert find_url(home, "two") == "https://github.com/us/pushed"


@pytest.mark.slow
def test_our_branches_are_fetched_and_pushed_and_no_other(
    forge: ForgeServer, tmp_path: Path
) -> None:
    git(forge.repository, "branch", BRANCH, "main")
    git(forge.repository, "branch", "other", "main")
    remote = opened(forge, tmp_path)
    main = git(forge.repository, "rev-parse", "main")
    assert (remote.base, remote.base_tip, remote.tips[BRANCH]) == ("main", main, main)
    assert git(tmp_path / "mods", "branch", "--format=%(refname:short)").split() == ["main", BRANCH]
    git(tmp_path / "mods", "checkout", "-q", "-b", "work")
    made = commit(tmp_path / "mods", {"x": "1\n"})
    remote.push(BRANCH, made)
    assert git(forge.repository, "rev-parse", BRANCH, "main", "other").split() == [made, main, main]
    assert remote.has(main)
    assert not remote.has(made)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["main", None])
def test_what_somebody_pushed_meanwhile_stays(
    forge: ForgeServer, tmp_path: Path, by: str | None
) -> None:
    if by is None:
        git(forge.repository, "branch", BRANCH, "main")
    remote = opened(forge, tmp_path)
    theirs = git(forge.repository, "commit-tree", "main^{tree}", "-p", "main", "-m", "theirs")
    git(forge.repository, "update-ref", f"refs/heads/{BRANCH}", theirs)
    with pytest.raises(Refused, match=f"{BRANCH} was not pushed: ") as caught:
        remote.push(BRANCH, remote.base_tip)
    assert git(forge.repository, "rev-parse", BRANCH) == theirs
    assert TOKEN not in caught.value.message
    assert "then run keep again" in str(caught.value.hint)


@pytest.mark.slow
def test_a_branch_that_is_another_one_here_is_left_to_a_person(
    forge: ForgeServer, tmp_path: Path
) -> None:
    ours, theirs = (
        git(folder, "commit-tree", "main^{tree}", "-p", "main", "-m", name)
        for folder, name in ((tmp_path / "mods", "ours"), (forge.repository, "theirs"))
    )
    git(tmp_path / "mods", "branch", BRANCH, ours)
    git(forge.repository, "branch", BRANCH, theirs)
    with pytest.raises(Refused, match=r"(?s)the remote cannot be read: .*rejected") as caught:
        opened(forge, tmp_path)
    assert "git fetch NAME '+refs/heads/vllm-mods/*" in str(caught.value.hint)
    assert git(tmp_path / "mods", "rev-parse", BRANCH) == ours


@pytest.mark.slow
def test_head_is_on_the_default_branch_or_behind_it(forge: ForgeServer, tmp_path: Path) -> None:
    library = tmp_path / "mods"
    git(library, "checkout", "-q", "--detach")
    assert opened(forge, tmp_path).base == "main"
    commit(library, {"x": "1\n"})
    with pytest.raises(Refused, match="has commits that main of the remote lacks") as caught:
        opened(forge, tmp_path)
    assert str(caught.value.hint).startswith("git checkout main  # ")
    git(library, "push", "-q", str(forge.repository), "HEAD:main")
    git(library, "checkout", "-q", "HEAD~1")
    assert opened(forge, tmp_path).base == "main"


@pytest.mark.slow
def test_a_shallow_clone_is_refused(forge: ForgeServer, tmp_path: Path) -> None:
    commit(tmp_path / "mods", {"x": "1\n"})
    git(tmp_path / "mods", "push", "-q", str(forge.repository), "main")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{forge.repository}", "shallow")
    with pytest.raises(Refused, match="is a shallow clone") as caught:
        open_remote(str(tmp_path / "shallow"), forge.remote, TOKEN)
    assert "fetch-depth: 0" in str(caught.value.hint)


@pytest.mark.slow
def test_a_remote_without_a_default_branch_is_refused(forge: ForgeServer, tmp_path: Path) -> None:
    git(forge.repository, "update-ref", "-d", "refs/heads/main")
    with pytest.raises(Refused, match="it has no default branch"):
        opened(forge, tmp_path)


@pytest.mark.slow
def test_what_a_checkout_left_of_another_login_is_not_sent_too(
    forge: ForgeServer, tmp_path: Path
) -> None:
    key = f"http.{forge.url}/.extraheader"
    git(tmp_path / "mods", "config", key, "Authorization: Basic xyz")
    git(tmp_path / "mods", "config", f"url.{forge.url}/them.insteadOf", f"{forge.url}/nobody")
    assert opened(forge, tmp_path).base == "main"  # the server takes one header only


@pytest.mark.slow
def test_git_takes_the_token_nowhere_else(forge: ForgeServer, tmp_path: Path) -> None:
    with forge_server.serving("github", tmp_path / "other") as other:
        forge.git_moved = other.url
        with pytest.raises(Refused) as caught:
            opened(forge, tmp_path)
        assert other.git_asked == []
        assert TOKEN not in caught.value.message


@pytest.mark.slow
def test_a_token_that_is_not_taken_is_said_and_not_shown(
    forge: ForgeServer, tmp_path: Path
) -> None:
    with pytest.raises(
        Refused, match=r"the remote cannot be read: .*(Authentication failed|could not read)"
    ) as caught:
        open_remote(str(tmp_path / "mods"), forge.remote, "an0ther-t0ken")
    assert "an0ther" not in caught.value.message
