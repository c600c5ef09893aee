"""One request for each branch, whatever was done before, and whoever did it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from vllm_mods.keeping.proposing import Proposal, PullRequest, RequestText, plan

BRANCH = "vllm-mods/fast/0.20.0"
TEXT = RequestText("title", "body\n\n<!-- vllm-mods 1234 -->")
OTHER = RequestText("title", "body\n\n<!-- vllm-mods 5678 -->")
PROPOSAL = Proposal(BRANCH, "new", TEXT)
OBSOLETE = Proposal(BRANCH, None, None)


def request(state: str = "open", text: RequestText = TEXT, number: int = 1) -> PullRequest:
    return PullRequest(number, BRANCH, state, text, "url")


@pytest.mark.parametrize(
    ("proposal", "requests", "tip", "did", "push", "write"),
    [
        (PROPOSAL, [], None, "opened", "new", TEXT),
        (PROPOSAL, [], "new", "opened", None, TEXT),  # a run before was cut off
        (PROPOSAL, [request()], "new", "current", None, None),
        (PROPOSAL, [request()], "old", "updated", "new", None),
        (PROPOSAL, [request(text=OTHER)], "new", "updated", None, TEXT),
        (PROPOSAL, [request(text=RequestText("mine", "mine"))], "old", "updated", "new", TEXT),
        (PROPOSAL, [request("closed")], None, "declined", None, None),
        (PROPOSAL, [request("merged")], "old", "merged", None, None),
        (PROPOSAL, [request("closed", number=2), request("merged")], None, "declined", None, None),
        (PROPOSAL, [request("closed", number=2), request()], "new", "current", None, None),
        (OBSOLETE, [], None, "", None, None),
        (OBSOLETE, [request("closed")], "old", "", None, None),
    ],
)
def test_what_becomes_of_a_branch(
    proposal: Proposal,
    requests: list[PullRequest],
    *,
    tip: str | None,
    did: str,
    push: str | None,
    write: RequestText | None,
) -> None:
    planned = plan(proposal, requests, tip)
    assert (planned and (planned.did, planned.commit, planned.text)) == (
        (did, push, write) if did else None
    )


def test_what_a_person_added_to_a_request_stays() -> None:
    body = TEXT.body.replace("body", "body, and: I looked at it") + "\n\n- [x] tried\n"
    edited = request(text=RequestText("mine", body))
    planned = plan(PROPOSAL, [edited], "new")
    assert planned is not None
    assert planned.did == "current"


def test_a_request_of_which_nothing_is_left_says_so_and_keeps_its_text() -> None:
    closed = plan(OBSOLETE, [request()], "old")
    assert closed is not None
    assert (closed.did, closed.commit, closed.request) == ("closed", None, request())
    assert closed.text == RequestText(
        "title", f"`vllm-mods keep` closed this, because nothing is left to do.\n\n{TEXT.body}"
    )


STATES = st.lists(st.sampled_from(["open", "closed", "merged"]), max_size=4)


@given(STATES, st.sampled_from([None, "old", "new"]), st.booleans(), st.booleans())
def test_a_second_run_does_nothing(
    states: list[str],
    tip: str | None,
    obsolete: bool,  # noqa: FBT001
    same: bool,  # noqa: FBT001
) -> None:
    """And no plan opens a request where there ever was one, or touches one that is not open."""
    requests = [
        request(state, TEXT if same else OTHER, number)
        for number, state in enumerate(reversed(states), 1)
    ][::-1]
    proposal = OBSOLETE if obsolete else PROPOSAL
    step = plan(proposal, requests, tip)
    if step is None:
        assert obsolete
        return
    assert (step.did == "opened") == (not requests and not obsolete)
    if step.text is not None and step.request is not None:
        assert step.request.state == "open"
    changed = step.request or request(number=9)
    changed = changed._replace(
        text=step.text or changed.text, state="closed" if step.did == "closed" else changed.state
    )
    requests = [changed, *(one for one in requests if one.number != changed.number)]
    again = plan(proposal, requests, step.commit or tip)
    assert again is None or again.did == "closed" or (again.commit, again.text) == (None, None)
