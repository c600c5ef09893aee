"""Branches that were kept: pushed to a forge, each with one request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import forge_server
import pytest
from forge_server import TOKEN, VARIABLES, ForgeServer, Request
from git_host import commit, git, mod

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.keeping import branches
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.proposing import RequestText
from vllm_mods.keeping.pull_requests import PullRequests

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def library(tmp_path: Path) -> Path:
    commit(tmp_path / "mods", mod("fast") | mod("slow"))
    return tmp_path / "mods"


@pytest.fixture
def forge(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForgeServer]:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "An Author")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "author@example.org")
    with forge_server.serving("gitlab", tmp_path / "forge") as running:
        git(library, "push", "-q", str(running.repository), "main")
        git(library, "remote", "add", "origin", running.remote)
        server, token = VARIABLES[running.kind]
        monkeypatch.setenv(server, running.url)
        monkeypatch.setenv(token, f"{TOKEN}\n")  # as a file has it
        yield running


def save(library: Path, name: str, release: str, since: str, text: str) -> KeptRelease:
    """Make the branch of a mod and a release as ``keep`` does."""
    home, branch = branches.home(str(library)), f"{branches.PREFIX}{name}/{release}"
    with branches.laid_out(home, since) as place:
        (Path(place) / f"patches/{name}/x.py").write_text(text)
        made = branches.commit(home, branch, since, place, f"{name} on {release}\n\nbody\n")
    return KeptRelease(name, release, "widened", branch=branch, commit=made)


def text(message: str, diff: str) -> RequestText:
    title, _, body = message.partition("\n")
    return RequestText(title, f"{body.strip()}\n{diff}\n<!-- vllm-mods {len(diff)} -->")


def propose(library: Path, *kept: KeptRelease, dry_run: bool = False) -> dict[str, str]:
    steps = PullRequests(str(library), None).propose(kept, text, dry_run=dry_run)
    return {step.branch.removeprefix(branches.PREFIX): step.did for step in steps}


@pytest.mark.slow
def test_each_branch_has_a_request_with_what_it_has_beyond_the_one_before(
    forge: ForgeServer, library: Path
) -> None:
    first = save(library, "fast", "0.20.0", "main", "X = 2\n")
    second = save(library, "fast", "0.21.0", str(first.commit), "X = 3\n")
    other = save(library, "slow", "0.20.0", "main", "X = 4\n")
    stuck = KeptRelease("slow", "0.21.0", "stuck", branch="vllm-mods/slow/0.21.0")
    kept = (first, second, other, stuck)
    wanted = dict.fromkeys(("fast/0.20.0", "fast/0.21.0", "slow/0.20.0"), "opened")
    assert propose(library, *kept, dry_run=True) == wanted
    assert (forge.requests, git(forge.repository, "branch", "--list", "vllm-mods/*")) == ([], "")
    assert propose(library, *kept) == wanted
    titles = [request.title for request in forge.requests]
    assert titles == ["fast on 0.20.0", "fast on 0.21.0", "slow on 0.20.0"]
    changes = [
        [line for line in request.body.splitlines() if line[:2] in {"-X", "+X"}]
        for request in forge.requests
    ]
    assert changes == [["-X = 1", "+X = 2"], ["-X = 2", "+X = 3"], ["-X = 1", "+X = 4"]]
    assert all(request.body.startswith("body\n") for request in forge.requests)
    assert [request.base for request in forge.requests] == ["main"] * 3
    assert propose(library, *kept) == dict.fromkeys(wanted, "current")
    assert PullRequests(str(library), "origin").releases("fast") == {"0.20.0", "0.21.0"}
    forge.requests[0].state = "closed"
    assert PullRequests(str(library), "origin").releases("fast") == {"0.21.0"}

    nothing_left = second._replace(did="fits", commit=None)
    assert propose(library, first, nothing_left) == {
        "fast/0.20.0": "declined",
        "fast/0.21.0": "closed",
    }
    assert [request.state for request in forge.requests] == ["closed", "closed", "open"]
    git(library, "push", "-q", str(forge.repository), f"{other.commit}:main")
    assert propose(library, other) == {"slow/0.20.0": "closed"}  # `main` has it


@pytest.mark.slow
def test_a_remote_that_does_not_answer_is_said_before_anything_is_made(
    forge: ForgeServer, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge.requests.append(Request(1, "vllm-mods/fast/0.20.0", "main", "t", "", fork=True))
    assert PullRequests(str(library), None).releases("fast") == set()
    monkeypatch.setenv("GITLAB_TOKEN", "an0ther")
    with pytest.raises(Refused, match="the token in GITLAB_TOKEN is unknown to the server"):
        PullRequests(str(library), None)
    git(library, "remote", "set-url", "origin", str(forge.repository))
    with pytest.raises(UsageError, match="no environment variable says which forge"):
        PullRequests(str(library), None)


@pytest.mark.slow
def test_a_branch_that_is_made_again_is_not_one_that_is_checked_out(library: Path) -> None:
    for words in (("user.name", "me"), ("user.email", "me@example.org")):
        git(library, "config", *words)
    made = save(library, "fast", "0.20.0", "main", "X = 2\n")
    home = branches.home(str(library))
    assert branches.is_own(home, "main", str(made.commit))
    with branches.laid_out(home, "main") as place:
        again = branches.commit(home, made.branch, "main", place, "less\n", again=True)
        assert git(library, "rev-parse", made.branch) == again != made.commit
        git(library, "checkout", "-q", made.branch)
        with pytest.raises(Refused, match=r"could not be made: .*checked out|used by worktree"):
            branches.commit(home, made.branch, "main", place, "more\n", again=True)
    assert git(library, "rev-parse", made.branch) == again


@pytest.mark.slow
def test_a_branch_is_outdated_where_its_own_mod_changed_below_it(library: Path) -> None:
    git(library, "config", "user.name", "me")
    git(library, "config", "user.email", "me@example.org")
    made = save(library, "fast", "0.20.0", "main", "X = 2\n")
    home, tip = (
        branches.home(str(library)),
        str(save(library, "fast", "0.21.0", str(made.commit), "X = 3\n").commit),
    )
    commit(library, {"patches/slow/x.py": "X = 9\n"})
    assert not branches.is_outdated(home, "main", tip, "fast")
    assert not branches.is_outdated(home, str(made.commit), tip, "fast")
    commit(library, {"patches/fast/x.py": "X = 2\n"})
    assert branches.is_outdated(home, "main", tip, "fast")
    git(library, "checkout", "-q", "--orphan", "alone")
    alone = commit(library, {"x": "1\n"})
    with pytest.raises(Refused, match="cannot be compared with"):
        branches.is_outdated(home, alone, tip, "fast")
