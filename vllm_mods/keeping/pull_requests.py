"""The branches of a library at its forge: pushed, each with one pull request."""

import os
from collections.abc import Callable, Iterator, Sequence

from vllm_mods.keeping import branches, forges, proposing
from vllm_mods.keeping.forge_client import ForgeClient
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.proposing import Proposal, RequestText
from vllm_mods.keeping.remote import find_url, open_remote

MakeText = Callable[[str, str], RequestText]
"""Makes the text of a request of a commit's message and a diff."""


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
