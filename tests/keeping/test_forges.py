"""A remote's URL says which forge is asked, where its API is, and whose token goes there."""

from __future__ import annotations

import pytest

from vllm_mods.base.errors import UsageError
from vllm_mods.keeping import forges

TOKENS = {"GITHUB_TOKEN": "a", "GITLAB_TOKEN": "b", "GITEA_TOKEN": "c"}
GITHUB = "https://api.github.com/repos/us/mods/pulls"
GITLAB = "https://gitlab.com/api/v4/projects/us%2Fa%2Fmods/merge_requests"


@pytest.mark.parametrize(
    ("remote", "servers", "requests", "variable"),
    [
        ("https://github.com/us/mods.git", {}, GITHUB, "GITHUB_TOKEN"),
        ("https://GitHub.com/us/mods/", {}, GITHUB, "GITHUB_TOKEN"),
        ("https://me:secret@github.com/us/mods", {}, GITHUB, "GITHUB_TOKEN"),
        ("git@github.com:us/mods.git", {}, GITHUB, "GITHUB_TOKEN"),
        ("ssh://git@github.com:22/us/mods.git", {}, GITHUB, "GITHUB_TOKEN"),
        ("git@gitlab.com:us/a/mods.git", {}, GITLAB, "GITLAB_TOKEN"),
        (
            "https://codeberg.org/us/mods",
            {},
            "https://codeberg.org/api/v1/repos/us/mods/pulls",
            "GITEA_TOKEN",
        ),
        (
            "https://ghe.example.org/us/mods",
            {"GITHUB_SERVER_URL": "https://ghe.example.org"},
            "https://ghe.example.org/api/v3/repos/us/mods/pulls",
            "GITHUB_TOKEN",
        ),
        (
            "https://us.ghe.com/us/mods",
            {"GITHUB_SERVER_URL": "https://us.ghe.com"},
            "https://api.us.ghe.com/repos/us/mods/pulls",
            "GITHUB_TOKEN",
        ),
        (
            "ssh://git@lab.example.org:2222/git/us/mods.git",
            {"CI_SERVER_URL": "https://lab.example.org/git/"},
            "https://lab.example.org/git/api/v4/projects/us%2Fmods/merge_requests",
            "GITLAB_TOKEN",
        ),
        (
            "http://127.0.0.1:3000/us/mods",
            {"GITEA_SERVER_URL": "http://127.0.0.1:3000"},
            "http://127.0.0.1:3000/api/v1/repos/us/mods/pulls",
            "GITEA_TOKEN",
        ),
        (
            "https://tea.example.org/us/mods",
            {"GITHUB_SERVER_URL": "https://tea.example.org", "GITEA_ACTIONS": "true"},
            "https://tea.example.org/api/v1/repos/us/mods/pulls",
            "GITEA_TOKEN",
        ),
    ],
)
def test_a_remote_leads_to_its_requests(
    remote: str, servers: dict[str, str], requests: str, variable: str
) -> None:
    repository = forges.find(remote, TOKENS | servers)
    assert (repository.requests, repository.variable) == (requests, variable)


def test_the_runner_of_gitea_sets_what_github_s_does() -> None:
    environ = {"GITHUB_SERVER_URL": "https://tea.example.org", "FORGEJO_ACTIONS": "true"}
    repository = forges.find("https://tea.example.org/us/mods", environ | {"GITHUB_TOKEN": "a"})
    assert (repository.variable, repository.requests.partition("/api/")[2]) == (
        "GITHUB_TOKEN",
        "v1/repos/us/mods/pulls",
    )


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com.example.org/us/mods",
        "https://example.org/github.com/us/mods",
        "https://github.com:8443/us/mods",
        "https://github.com@example.org/us/mods",
        "git@example.org:github.com/us/mods",
        "https://ghe.example.org:444/us/mods",
        "ext::sh -c x",
    ],
)
def test_a_token_is_for_its_own_host_alone(remote: str) -> None:
    environ = TOKENS | {"GITHUB_SERVER_URL": "https://ghe.example.org"}
    with pytest.raises(UsageError, match="no environment variable says which forge") as caught:
        forges.find(remote, environ)
    assert str(caught.value.hint).startswith("export GITHUB_SERVER_URL=https://")


@pytest.mark.parametrize("remote", ["/srv/mods.git", "../mods", "file:///srv/mods", "mods"])
def test_a_path_is_no_forge(remote: str) -> None:
    with pytest.raises(UsageError, match="no environment variable says which forge") as caught:
        forges.find(remote, TOKENS | {"GITHUB_SERVER_URL": "https:///"})
    assert str(caught.value.hint).startswith("export GITHUB_SERVER_URL=https://HOST")


@pytest.mark.parametrize(
    ("remote", "server"),
    [
        ("http://ghe.example.org/us/mods", "http://ghe.example.org"),
        ("git@ghe.example.org:us/mods", "http://ghe.example.org"),
    ],
)
def test_no_token_goes_over_plain_http(remote: str, server: str) -> None:
    with pytest.raises(UsageError, match="over https only") as caught:
        forges.find(remote, TOKENS | {"GITHUB_SERVER_URL": server})
    assert caught.value.hint == "git remote set-url NAME https://ghe.example.org/us/mods"


@pytest.mark.parametrize("token", ["a b", "a\nb", "ä", "a\x00"])
def test_what_no_header_takes_is_no_token_and_is_not_shown(token: str) -> None:
    with pytest.raises(UsageError) as caught:
        forges.find("https://github.com/us/mods", {"GITHUB_TOKEN": token})
    assert (
        caught.value.message
        == "GITHUB_TOKEN is not a token: it contains blanks or other invalid characters"
    )
    assert token not in str(caught.value.hint)


def test_what_is_no_token_for_the_host_is_named() -> None:
    environ = {"GITHUB_TOKEN": "a", "GITLAB_TOKEN": "", "CI_JOB_TOKEN": "d"}
    with pytest.raises(UsageError) as caught:
        forges.find("https://me:secret@gitlab.com/us/mods", environ)
    assert caught.value.message == (
        "https://gitlab.com/us/mods: no token for it in GITLAB_TOKEN (CI_JOB_TOKEN is not allowed to open merge requests)"
    )
    assert str(caught.value.hint).startswith("export GITLAB_TOKEN=TOKEN  # a project access token")
    with pytest.raises(UsageError, match=r"in FORGEJO_TOKEN or GITEA_TOKEN$"):
        forges.find("https://codeberg.org/us/mods", environ)
