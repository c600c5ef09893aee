"""What is to be opened, updated and closed at a forge, so that each branch has one pull request. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_STAMP = re.compile(r"<!-- vllm-mods \w+ -->")
_OBSOLETE = "`vllm-mods keep` closed this, because nothing is left to do.\n\n"


class RequestText(NamedTuple):
    """The title and the body of a pull request."""

    title: str
    body: str

    @property
    def stamp(self) -> str:
        """The last mark in a body: what was written, whatever a person has added to it since."""
        marks: list[str] = _STAMP.findall(self.body)
        return marks[-1] if marks else ""


class PullRequest(NamedTuple):
    """A pull request at a forge: ``state`` is ``open``, ``closed`` or ``merged``."""

    number: int
    branch: str
    state: str
    text: RequestText
    url: str


class Proposal(NamedTuple):
    """A branch, its ``commit`` here, and the ``text`` that its request is to have, None if nothing of it is left to do.

    Of a plan, they are what is to be pushed and to be written, and ``did`` is what becomes of the ``request``:
    ``opened``, ``updated``, ``closed``, ``current``, ``merged`` or ``declined`` (a person closed it).
    """

    branch: str
    commit: str | None
    text: RequestText | None
    did: str = ""
    request: PullRequest | None = None


def plan(proposal: Proposal, requests: Sequence[PullRequest], tip: str | None) -> Proposal | None:
    """Return what to do, None for nothing, given all requests for a branch, the newest first, and its commit at the remote."""
    text = proposal.text
    proposal = proposal._replace(commit=None if tip == proposal.commit else proposal.commit)
    request = next((one for one in requests if one.state == "open"), None)
    if request is not None:
        if text is None:
            text, did = request.text._replace(body=f"{_OBSOLETE}{request.text.body}"), "closed"
        else:
            text = None if request.text.stamp == text.stamp else text
            did = "updated" if proposal.commit or text else "current"
        return proposal._replace(text=text, did=did, request=request)
    if text is None:
        return None
    if requests:
        did = "merged" if requests[0].state == "merged" else "declined"
        return Proposal(proposal.branch, None, None, did, requests[0])
    return proposal._replace(did="opened")
