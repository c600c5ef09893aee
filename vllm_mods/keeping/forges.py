"""The forges at which pull requests are opened: where their API is, what they call things, whose token they take. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from vllm_mods.base.errors import UsageError
from vllm_mods.base.hops import is_local, place, redact


class Forge(NamedTuple):
    """A kind of forge.

    ``tokens``, with the rights in ``grant``, are for its ``hosts`` and the host of the URL in a variable of ``servers``.
    ``path`` leads to a repository's requests. Keys ``sent`` are head, base and body; ``change`` is a method and what
    closes a request; keys ``read`` are number, URL, branch, and two that differ for a request from a fork.
    """

    hosts: tuple[str, ...]
    servers: tuple[str, ...]
    tokens: tuple[str, ...]
    grant: str
    path: str
    page_size: str
    sent: tuple[str, str, str]
    change: tuple[str, str, str]
    read: tuple[str, str, str, str, str]


GITHUB = Forge(
    hosts=("github.com",),
    servers=("GITHUB_SERVER_URL",),
    tokens=("GITHUB_TOKEN",),
    grant="permissions: {contents: write, pull-requests: write}, and let Actions create pull requests (Settings, Actions, General)",
    path="/api/v3/repos/{name}/pulls",
    page_size="per_page",
    sent=("head", "base", "body"),
    change=("PATCH", "state", "closed"),
    read=("number", "html_url", "head.ref", "head.repo.id", "base.repo.id"),
)
GITEA = GITHUB._replace(
    hosts=("codeberg.org", "gitea.com"),
    servers=("FORGEJO_SERVER_URL", "GITEA_SERVER_URL"),
    tokens=("FORGEJO_TOKEN", "GITEA_TOKEN"),
    grant="a token with the scope write:repository",
    path="/api/v1/repos/{name}/pulls",
    page_size="limit",
    # once the branch is gone, `head.ref` names something else
    read=("number", "html_url", "head.label", "head.repo_id", "base.repo_id"),
)
GITLAB = Forge(
    hosts=("gitlab.com",),
    servers=("CI_SERVER_URL",),
    tokens=("GITLAB_TOKEN",),  # CI_JOB_TOKEN may not open merge requests
    grant="a project access token of a Developer with the scopes api and write_repository",
    path="/api/v4/projects/{id}/merge_requests",
    page_size="per_page",
    sent=("source_branch", "target_branch", "description"),
    change=("PUT", "state_event", "close"),
    read=("iid", "web_url", "source_branch", "source_project_id", "target_project_id"),
)


class ForgeRepository(NamedTuple):
    """A repository at a forge, the URL of its requests, and the variable with the token for that host."""

    forge: Forge
    name: str
    requests: str
    variable: str


def find(remote: str, environ: Mapping[str, str]) -> ForgeRepository:
    """Return the repository that a remote's URL names. Raises ``UsageError``: a token goes to its own host alone."""
    url = remote
    if "://" not in remote and ":" in remote.partition("/")[0]:  # as ssh has it: user@host:path
        url = f"ssh://{remote.replace(':', '/', 1)}"
    parts, shown = urlsplit(url), redact(url)
    forge, root = _server(url, environ)
    server = urlsplit(root)
    if "http" in {parts.scheme, server.scheme} and not is_local(parts.hostname):
        why = f"{shown} is not https, and a token is sent over https only"
        raise UsageError(why, hint=f"git remote set-url NAME https://{parts.hostname}{parts.path}")
    variable = next((name for name in forge.tokens if environ.get(name)), None)
    if variable is None:
        job = " (CI_JOB_TOKEN is not allowed to open merge requests)" if forge is GITLAB else ""
        why = f"{shown}: no token for it in {' or '.join(forge.tokens)}{job}"
        raise UsageError(why, hint=f"export {forge.tokens[0]}=TOKEN  # {forge.grant}")
    if not re.fullmatch("[!-~]+", environ[variable].strip()):
        why = f"{variable} is not a token: it contains blanks or other invalid characters"
        raise UsageError(why, hint=f"export {variable}=TOKEN")
    name = parts.path.strip("/").removesuffix(".git").removeprefix(f"{server.path[1:]}/")
    requests = root + forge.path.format(name=quote(name), id=quote(name, safe=""))
    if root == "https://github.com" or str(parts.hostname).endswith(".ghe.com"):
        requests = requests.replace("://", "://api.", 1).replace("/api/v3", "", 1)
    return ForgeRepository(forge, name, requests, variable)


def _server(url: str, environ: Mapping[str, str]) -> tuple[Forge, str]:
    """Return the forge that a URL is of, and the URL of its server."""
    gitea = GITEA
    if environ.get("GITEA_ACTIONS") or environ.get("FORGEJO_ACTIONS"):  # its runner sets GitHub's
        tokens = GITEA.tokens + GITHUB.tokens
        gitea = GITEA._replace(servers=GITEA.servers + GITHUB.servers, tokens=tokens)
    scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
    for forge in (gitea, GITHUB, GITLAB):
        stated = [environ.get(name, "").rstrip("/") for name in forge.servers]
        for root in [*(f"https://{name}" for name in forge.hosts), *filter(None, stated)]:
            is_same = host == urlsplit(root).hostname is not None
            has_port = scheme in {"http", "https"} and place(url).lower() == place(root).lower()
            if is_same and (has_port or scheme == "ssh"):
                return forge, root
    why = f"{redact(url)}: no environment variable says which forge {host or 'the server'} is"
    hint = f"export GITHUB_SERVER_URL=https://{host or 'HOST'}  # for GitLab CI_SERVER_URL, for Gitea and Forgejo GITEA_SERVER_URL"
    raise UsageError(why, hint=hint)
