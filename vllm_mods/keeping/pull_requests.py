"""The branches of a library at its forge: pushed to the remote, each with one pull request.

git has the token in its environment, for the URL of the remote alone; no redirect takes it elsewhere.
"""

import base64
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.hops import place
from vllm_mods.keeping import branches, forges, proposing
from vllm_mods.keeping.forge_client import ForgeClient
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.proposing import Proposal, RequestText

_BRANCHES = f"refs/heads/{branches.PREFIX}*"
MakeText = Callable[[str, str], RequestText]
"""Makes the text of a request of a commit's message and a diff."""


class Remote(NamedTuple):
    """A remote: its default branch ``base``, and the ``tips`` of its branches that are ours."""

    home: branches.LibraryHome
    url: str
    base: str
    base_tip: str
    tips: Mapping[str, str]

    def push(self, branch: str, commit: str) -> None:
        """Push a branch of ours, if the remote has it as it was looked at. Raises ``Refused``."""
        name = f"refs/heads/{branch}"
        lease = f"--force-with-lease={name}:{self.tips.get(branch, '')}"
        words = ("push", "--quiet", "--no-verify", lease, "--", self.url, f"{commit}:{name}")
        self.home.run(f"{branch} was not pushed", *words)

    def has(self, commit: str) -> bool:
        """Tell whether the default branch has a commit."""
        words = ("merge-base", "--is-ancestor", commit, self.base_tip)
        return self.home.repository.run(*words).code == 0


def find_url(home: branches.LibraryHome, name: str | None) -> str:
    """Return the URL to push to, of a remote or of the only one. Raises ``UsageError``."""
    names = home.run("the remotes cannot be read", "remote").decode().split()
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        remotes = f"has the remotes {', '.join(names)}" if names else "has no remote"
        why = f"{home.repository.folder} {remotes}; pull requests need exactly one"
        raise UsageError(why, hint=f"--remote {names[0]}" if names else "git remote add origin URL")
    return home.run(f"{name} cannot be read", "remote", "get-url", "--push", name).decode().strip()


def open_remote(library: str, url: str, token: str) -> Remote:
    """Look at a remote, and fetch its branches that are ours. Raises ``Refused`` where HEAD is not of its default branch."""
    parts = urlsplit(url)
    settings = [("http.followRedirects", "false")]
    if parts.scheme.startswith("http"):
        url = urlunsplit(parts._replace(netloc=place(url)))
        login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        # The empty one takes away what a checkout in CI has left in the repository's settings.
        headers = ("", f"Authorization: Basic {login}")
        settings += [(f"http.{url}.extraHeader", header) for header in headers]
    home = branches.home(library, settings)
    what = "the remote cannot be read"
    if home.run(what, "rev-parse", "--is-shallow-repository").strip() == b"true":
        why = f"{library} is a shallow clone, so the commits of its branches are unknown"
        raise Refused(why, hint="git fetch --unshallow  # in CI: fetch-depth: 0, GIT_DEPTH: 0")
    listed = home.run(what, "ls-remote", "--symref", "--", url, "HEAD", _BRANCHES).decode()
    refs: dict[str, str] = {}
    for value, _, name in (line.partition("\t") for line in listed.splitlines()):
        refs[f"{name} is" if value.startswith("ref: ") else name] = value
    base = refs.get("HEAD is", "").removeprefix("ref: refs/heads/")
    if not base or base.startswith(branches.PREFIX):
        raise Refused(f"{what}: it has no default branch", hint="git ls-remote --symref NAME HEAD")
    home.run(what, "fetch", "--no-tags", "--", url, "HEAD", f"{_BRANCHES}:{_BRANCHES}")
    tips = {name.removeprefix("refs/heads/"): tip for name, tip in refs.items()}
    remote = Remote(home, url, base, refs["HEAD"], tips)
    if not remote.has("HEAD"):
        why = f"HEAD of {library} has commits that {base} of the remote lacks, so each pull request would contain these commits"
        raise Refused(why, hint=f"git checkout {base}  # first push the commits that belong there")
    return remote


class PullRequests:
    """The pull requests at the forge of a remote; its branches that are ours are fetched."""

    def __init__(self, library: str, remote: str | None) -> None:
        """Look at both. Raises ``UsageError`` for a remote at no forge, ``Refused`` where one does not answer as it should."""
        self._home = branches.home(library)
        url = find_url(self._home, remote)
        repository = forges.find(url, os.environ)
        token = os.environ[repository.variable].strip()
        self._client = ForgeClient(repository, token)
        self._requests = self._client.list_all()
        self._remote = open_remote(library, url, token)

    def releases(self, mod: str) -> set[str]:
        """Return the releases for which a mod has an open request."""
        prefix = f"{branches.PREFIX}{mod}/"
        names = {request.branch for request in self._requests if request.state == "open"}
        return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}

    def propose(
        self, kept: Sequence[KeptRelease], make_text: MakeText, *, dry_run: bool
    ) -> Iterator[Proposal]:
        """Push branches, and open, update and close their requests; yield each when that is done."""
        for proposal in tuple(self._proposals(kept, make_text)):
            own = [request for request in self._requests if request.branch == proposal.branch]
            planned = proposing.plan(proposal, own, self._remote.tips.get(proposal.branch))
            if planned is not None:
                yield planned if dry_run else self._carry_out(planned)

    def _proposals(self, kept: Sequence[KeptRelease], make_text: MakeText) -> Iterator[Proposal]:
        mod, since = "", "HEAD"
        for release in kept:
            since = since if release.mod == mod else "HEAD"
            mod, commit = release.mod, release.commit
            if commit is not None and not self._remote.has(commit):
                described = branches.describe(self._home, since, commit, mod)
                yield Proposal(release.branch, commit, make_text(*described))
                since = commit
            elif release.did != "stuck":
                yield Proposal(release.branch, None, None)

    def _carry_out(self, proposal: Proposal) -> Proposal:
        branch, commit, text, did, request = proposal
        if commit is not None:
            self._remote.push(branch, commit)
        if text is not None and request is None:
            request = self._client.open(branch, self._remote.base, text)
        elif text is not None and request is not None:
            self._client.change(request, text, close=did == "closed")
        return proposal._replace(request=request)
