"""The branches of a library at its forge: pushed, each with one pull request."""

import os
from collections.abc import Callable, Iterator, Sequence

from vllm_mods.keeping import branches, forges, proposing
from vllm_mods.keeping import remote as remotes
from vllm_mods.keeping.forge_client import ForgeClient
from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.proposing import Proposal, PullRequest, RequestText, Step


class PullRequests:
    """The pull requests at the forge of a remote; its branches that are ours are fetched."""

    def __init__(self, library: str, remote: str | None) -> None:
        """Look at both. Raises ``UsageError`` for a remote that is at no forge, ``Refused`` where one does not answer so."""
        self._home = branches.home(library)
        url = remotes.find_url(self._home, remote)
        repository = forges.find(url, os.environ)
        token = os.environ[repository.variable]
        self._client = ForgeClient(repository, token)
        self._open = self._client.list_open()
        self._remote = remotes.open_remote(self._home, url, token)

    def releases(self, mod: str) -> set[str]:
        """Return the releases for which a mod has an open request."""
        prefix = f"{branches.PREFIX}{mod}/"
        names = {request.branch for request in self._open}
        return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}

    def propose(
        self,
        kept: Sequence[KeptRelease],
        text: Callable[[str, str], RequestText],
        *,
        dry_run: bool = False,
    ) -> Iterator[Step]:
        """Push the branches of what was kept, and open, update and close their requests; yield each step when it is done.

        ``text`` makes the text of a request of a commit's message and a diff.
        """
        proposals = tuple(self._proposals(kept, text))
        known = [request for proposal in proposals for request in self._requests(proposal)]
        for step in proposing.plan(proposals, known, self._remote.tips, self._remote.base):
            yield step if dry_run else self._carry_out(step)

    def _proposals(
        self, kept: Sequence[KeptRelease], text: Callable[[str, str], RequestText]
    ) -> Iterator[Proposal]:
        mod, since = "", "HEAD"
        for release in kept:
            if release.mod != mod:
                mod, since = release.mod, "HEAD"
            if release.did == "stuck":
                continue
            if release.commit is None or self._remote.has(release.commit):
                yield Proposal(release.branch, "", None)
                continue
            described = branches.described(self._home, since, release.commit, mod)
            yield Proposal(release.branch, release.commit, text(*described))
            since = release.commit

    def _requests(self, proposal: Proposal) -> Sequence[PullRequest]:
        requests = [request for request in self._open if request.branch == proposal.branch]
        return requests or (self._client.list_all(proposal.branch) if proposal.text else ())

    def _carry_out(self, step: Step) -> Step:
        if step.commit is not None:
            self._remote.push(step.branch, step.commit)
        if step.text is None:
            return step
        if step.request is None:
            opened = self._client.open(step.branch, self._remote.base, step.text)
            return step._replace(request=opened)
        self._client.change(step.request, step.text, close=step.did == "closed")
        return step
