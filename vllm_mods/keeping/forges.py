"""The forges at which pull requests are opened: where each has its API, what it calls things, whose token it takes. Pure."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from vllm_mods.base.errors import UsageError
from vllm_mods.base.hops import is_local, place, redact


class Forge(NamedTuple):
    """A kind of forge.

    A token of one of the variables ``tokens`` is for the ``hosts``, and for the host that one of ``servers`` has the
    URL of; ``grant`` says what it must be allowed. ``path`` is where requests lie, ``ours`` a query for those of one branch. The rest are names of keys: of what is
    sent (``close`` with its value), and dotted of what comes; the two ``sides`` differ for a request from a fork.
    """

    hosts: tuple[str, ...]
    servers: tuple[str, ...]
    tokens: tuple[str, ...]
    grant: str
    path: str
    ours: tuple[tuple[str, str], ...]
    open: str
    page_size: str
    method: str
    head: str
    base: str
    body: str
    close: tuple[str, str]
    number: str
    url: str
    branch: str
    sides: tuple[str, str]


GITHUB = Forge(
    hosts=("github.com",),
    servers=("GITHUB_SERVER_URL",),
    tokens=("GITHUB_TOKEN",),
    grant="permissions: {contents: write, pull-requests: write}  # and in the repository's settings: Actions, General, allow GitHub Actions to create pull requests",
    path="/repos/{repository}/pulls",
    ours=(("head", "{owner}:{branch}"),),
    open="open",
    page_size="per_page",
    method="PATCH",
    head="head",
    base="base",
    body="body",
    close=("state", "closed"),
    number="number",
    url="html_url",
    branch="head.ref",
    sides=("head.repo.id", "base.repo.id"),
)
GITEA = GITHUB._replace(
    hosts=("codeberg.org", "gitea.com"),
    servers=("FORGEJO_SERVER_URL", "GITEA_SERVER_URL"),
    tokens=("FORGEJO_TOKEN", "GITEA_TOKEN"),
    grant="a token with the scope write:repository",
    ours=(),  # it cannot be asked for one branch's
    page_size="limit",
    branch="head.label",  # `ref` names another one once the branch is gone
    sides=("head.repo_id", "base.repo_id"),
)
GITLAB = Forge(
    hosts=("gitlab.com",),
    servers=("CI_SERVER_URL",),
    tokens=("GITLAB_TOKEN",),
    grant="a project access token of a Developer with the scopes api and write_repository",
    path="/projects/{id}/merge_requests",
    ours=(("source_branch", "{branch}"),),
    open="opened",
    page_size="per_page",
    method="PUT",
    head="source_branch",
    base="target_branch",
    body="description",
    close=("state_event", "close"),
    number="iid",
    url="web_url",
    branch="source_branch",
    sides=("source_project_id", "target_project_id"),
)


class ForgeRepository(NamedTuple):
    """A repository at a forge: its name there, the URL of the API, and the variable with the token for that host."""

    forge: Forge
    name: str
    api: str
    variable: str

    @property
    def requests(self) -> str:
        """Return the URL of its requests."""
        whole = quote(self.name, safe="")
        return self.api + self.forge.path.format(repository=quote(self.name), id=whole)


def find(remote: str, environ: Mapping[str, str]) -> ForgeRepository:
    """Return the repository that a remote's URL names. Raises ``UsageError``: a token goes to its own host alone."""
    url = remote
    if "://" not in remote and ":" in remote.partition("/")[0]:  # as ssh has it: user@host:path
        url = "ssh://" + remote.replace(":", "/", 1)
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http", "ssh"} or not parts.hostname:
        raise UsageError(
            f"the remote {redact(remote)} is no repository at a forge: pull requests are opened at one",
            hint="git remote -v  # then name the one at GitHub, GitLab, Gitea or Forgejo with --remote",
        )
    if parts.scheme == "http" and not is_local(parts.hostname):
        raise UsageError(
            f"the remote {redact(url)} is reached without TLS, and a token would be seen on the way",
            hint=f"git remote set-url NAME {redact(url).replace('http', 'https', 1)}",
        )
    for forge, root, names in _servers(environ):
        server = urlsplit(root)
        same = parts.hostname == server.hostname
        if not same or (parts.scheme != "ssh" and place(url).lower() != place(root).lower()):
            continue
        if server.scheme != "https" and not is_local(server.hostname):
            raise UsageError(f"{redact(root)} is asked without TLS", hint="name it by https://")
        path = parts.path.strip("/").removesuffix(".git")
        name = path.removeprefix(f"{server.path.strip('/')}/")
        return ForgeRepository(forge, name, _api(forge, root), _variable(names, root, environ))
    raise UsageError(
        f"{parts.hostname}: nothing says which forge that is, nor that a token is for it",
        hint=f"export GITHUB_SERVER_URL=https://{parts.hostname}  # CI_SERVER_URL of GitLab, GITEA_SERVER_URL of Gitea and Forgejo",
    )


def _servers(environ: Mapping[str, str]) -> list[tuple[Forge, str, tuple[str, ...]]]:
    """Return each forge's servers, and the variables with the tokens for them."""
    rows = []
    # Their runners set what GitHub's do.
    is_gitea = bool(environ.get("GITEA_ACTIONS") or environ.get("FORGEJO_ACTIONS"))
    for forge in (GITEA, GITHUB, GITLAB):
        servers, tokens = forge.servers, forge.tokens
        if is_gitea and forge is GITEA:
            servers, tokens = servers + GITHUB.servers, tokens + GITHUB.tokens
        if is_gitea and forge is GITHUB:
            continue
        roots = [f"https://{host}" for host in forge.hosts]
        roots += [environ[name].rstrip("/") for name in servers if environ.get(name)]
        rows += [(forge, root, tokens) for root in roots]
    return rows


def _api(forge: Forge, root: str) -> str:
    host = urlsplit(root).hostname or ""
    if forge is GITLAB:
        return f"{root}/api/v4"
    if forge is GITEA:
        return f"{root}/api/v1"
    is_hosted = host in forge.hosts or host.endswith(".ghe.com")
    return f"https://api.{host}" if is_hosted else f"{root}/api/v3"


def _variable(names: tuple[str, ...], root: str, environ: Mapping[str, str]) -> str:
    for name in names:
        if environ.get(name):
            return name
    why = f"no token for {place(root)}: {' and '.join(names)} {'is' if len(names) == 1 else 'are'} not set"
    if environ.get("CI_JOB_TOKEN"):
        why += ", and CI_JOB_TOKEN may not open merge requests"
    raise UsageError(why, hint=f"export {names[0]}=TOKEN")
