"""What is asked of a forge, and what comes of answers that are none: errors that say where, why and what next."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import forge_server
import pytest
from forge_server import TOKEN, VARIABLES, ForgeServer, Request
from git_host import git
from lowering import lower

from vllm_mods.base.errors import Refused, Unreachable
from vllm_mods.keeping import forge_client, forges
from vllm_mods.keeping.forge_client import ForgeClient
from vllm_mods.keeping.proposing import RequestText

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = RequestText("a title", "a body")
BRANCH = "vllm-mods/fast/0.20.0"


@pytest.fixture(autouse=True)
def _no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in itertools.chain(*VARIABLES.values()):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=VARIABLES)
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ForgeServer]:
    with forge_server.serving(request.param, tmp_path) as running:
        git(tmp_path, "init", "-q", "-b", "main", "work")
        git(tmp_path / "work", "commit", "-q", "--allow-empty", "-m", "first")
        refs = (f"HEAD:refs/heads/{name}" for name in ("main", BRANCH))
        git(tmp_path / "work", "push", "-q", str(running.repository), *refs)
        yield running


def client(forge: ForgeServer, monkeypatch: pytest.MonkeyPatch) -> ForgeClient:
    server, token = VARIABLES[forge.kind]
    monkeypatch.setenv(token, TOKEN)
    return ForgeClient(forges.find(forge.remote, {server: forge.url, token: TOKEN}), TOKEN)


def test_a_request_is_opened_changed_and_closed(
    forge: ForgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = client(forge, monkeypatch)
    opened = asking.open(BRANCH, "main", TEXT)
    assert (opened.number, opened.branch, opened.state, opened.text) == (1, BRANCH, "open", TEXT)
    assert opened.url.startswith(f"{forge.url}/us/mods/")
    assert asking.list_all() == (opened,)
    asking.change(opened, RequestText("another", "one"), close=False)
    asking.change(opened, RequestText("another", "one"), close=True)
    assert forge.requests == [Request(1, BRANCH, "main", "another", "one", state="closed")]
    (closed,) = asking.list_all()
    assert (closed.state, closed.text.body) == ("closed", "one")


def test_every_page_is_read_and_forks_are_left_out(
    forge: ForgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = client(forge, monkeypatch)
    forge.requests += [Request(n + 1, f"branch-{n}", "main", "t", "") for n in range(120)]
    forge.requests.append(Request(121, BRANCH, "main", "t", "", fork=True))
    forge.requests += [Request(n, BRANCH, "main", "t", "", state="merged") for n in (122, 123)]
    forge.requests[-1].state = "closed"
    listed = asking.list_all()  # on Gitea the branch's ref is another by now
    assert len(listed) == 122
    assert [(request.number, request.branch, request.state) for request in listed[:3]] == [
        (123, BRANCH, "closed"),
        (122, BRANCH, "merged"),
        (120, "branch-119", "open"),
    ]


def test_a_repository_with_too_many_is_refused_and_none_is_opened_twice(
    forge: ForgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "REQUESTS", 100)
    forge.requests += [Request(n + 1, f"branch-{n}", "main", "t", "") for n in range(120)]
    with pytest.raises(Refused, match="more than 100 pull requests"):
        client(forge, monkeypatch).list_all()


@pytest.mark.parametrize(
    ("status", "headers", "why", "hint"),
    [
        (401, {}, "the token in {variable} is unknown to the server", "{grant}, then run"),
        (403, {}, "the token in {variable} has no right to do that", "{grant}, then run"),
        (403, {"X-RateLimit-Remaining": "0"}, "the rate limit is reached for now", "then run"),
        (404, {}, "no such repository, or it is hidden from the token in", "{grant}, then run"),
        (422, {}, "the answer is 422: ", "then run the same command again"),
        (429, {"Retry-After": "0"}, "the rate limit is reached for now", "then run"),
        (301, {"Location": "/elsewhere"}, "the repository has moved: git remote set-url", "then"),
        (200, {}, "the answer is not a pull request", "then run"),
        (500, {}, "the answer is 500", "then run"),
    ],
)
def test_an_answer_that_is_none_says_what_to_do(
    forge: ForgeServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int,
    headers: dict[str, str],
    why: str,
    hint: str,
) -> None:
    asking = client(forge, monkeypatch)
    forge.answers.append((status, headers, {"message": f"no, {TOKEN}, and\nthat is that"}))
    with pytest.raises(Refused) as caught:
        asking.open(BRANCH, "main", TEXT)
    words = {
        "variable": VARIABLES[forge.kind][1],
        "grant": forges.find(
            forge.remote, {VARIABLES[forge.kind][0]: forge.url, VARIABLES[forge.kind][1]: TOKEN}
        ).forge.grant,
    }
    message = caught.value.message
    assert message.startswith(f"the pull requests of us/mods at {forge.url.partition('//')[2]}: ")
    assert why.format(**words) in message
    assert str(caught.value.hint).startswith(hint.replace("{grant}", words["grant"]))
    assert TOKEN not in message
    assert "\n" not in message


def test_a_redirect_is_not_followed(
    forge: ForgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = client(forge, monkeypatch)
    with forge_server.serving("github", tmp_path / "other") as other:
        for status in (302, 307, 308):
            forge.answers.append((status, {"Location": f"{other.url}{forge.api}"}, []))
            with pytest.raises(Refused):
                asking.list_all()
        assert other.asked == []


@pytest.mark.parametrize(
    "answer", [[1], [{}], {"message": "hello"}, "text", None, [{"number": "1"}]]
)
def test_what_is_no_list_of_requests_is_refused(
    forge: ForgeServer, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    asking = client(forge, monkeypatch)
    forge.answers.append((200, {}, answer))
    with pytest.raises(Refused):
        asking.list_all()


def test_without_a_network_it_says_so(forge: ForgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forge_client, "_RETRIES", 0)
    forge.url = "http://127.0.0.1:9"
    with pytest.raises(Unreachable) as caught:
        client(forge, monkeypatch).list_all()
    assert caught.value.message.startswith("127.0.0.1:9: the forge's API did not answer: ")
    assert "does the server answer? then run the same command again" in str(caught.value.hint)


def test_a_login_of_netrc_does_not_stand_in_for_the_token(
    forge: ForgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert client(forge, monkeypatch).list_all() == ()
