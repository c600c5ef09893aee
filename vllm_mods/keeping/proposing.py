"""What is to be opened, updated and closed at a forge, so that each branch has one pull request. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.digest import sha256

_STAMP = re.compile(r"<!-- vllm-mods (\w+) -->\s*\Z")
_OBSOLETE = "Closed by `vllm-mods keep`: nothing of it is left to do, {base} or an earlier request has it by now."


class RequestText(NamedTuple):
    """The title and the body of a pull request."""

    title: str
    body: str

    def stamped(self) -> "RequestText":
        """Return it with a mark by which a later run knows that it would write the same, whatever a person adds."""
        mark = sha256(f"{self.title}\n{self.body}".encode())[:16]
        return self._replace(body=f"{self.body.rstrip()}\n\n<!-- vllm-mods {mark} -->\n")


class PullRequest(NamedTuple):
    """A pull request at a forge: ``state`` is ``open``, ``closed`` or ``merged``."""

    number: int
    branch: str
    state: str
    text: RequestText
    url: str


class Proposal(NamedTuple):
    """A branch, its commit here, and the text of its request; without one, nothing of it is left to do."""

    branch: str
    commit: str
    text: RequestText | None


class Step(NamedTuple):
    """What is done for a branch: ``commit`` is pushed, if any, and its request.

    That is ``opened``, ``updated``, ``closed`` (as obsolete), ``current``, ``merged`` or ``declined`` (a person closed it).
    """

    branch: str
    did: str
    text: RequestText | None = None
    commit: str | None = None
    request: PullRequest | None = None


def plan(
    proposals: Sequence[Proposal],
    requests: Sequence[PullRequest],
    tips: Mapping[str, str],
    base: str,
) -> tuple[Step, ...]:
    """Return what to do, given every request for these branches, the newest first, and the commits that the remote has."""
    steps = (
        _step(
            proposal,
            [request for request in requests if request.branch == proposal.branch],
            tips.get(proposal.branch),
            base,
        )
        for proposal in proposals
    )
    return tuple(step for step in steps if step is not None)


def _step(
    proposal: Proposal, requests: Sequence[PullRequest], tip: str | None, base: str
) -> Step | None:
    branch, commit, text = proposal
    opened = next((request for request in requests if request.state == "open"), None)
    if text is None:
        if opened is None:
            return None
        body = f"{_OBSOLETE.format(base=base)}\n\n{opened.text.body}"
        return Step(branch, "closed", opened.text._replace(body=body), request=opened)
    if opened is None and requests:
        did = "merged" if requests[0].state == "merged" else "declined"
        return Step(branch, did, request=requests[0])
    push = None if commit == tip else commit
    if opened is None:
        return Step(branch, "opened", text, push)
    same = _STAMP.search(opened.text.body), _STAMP.search(text.body)
    if same[0] and same[1] and same[0][1] == same[1][1]:
        return Step(branch, "updated" if push else "current", None, push, opened)
    return Step(branch, "updated", text, push, opened)
