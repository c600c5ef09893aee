"""Where hunks belong, on files that look for trouble: see ``troubled``."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from memory_tree import MemoryTree
from mod_making import mod, variant
from sampling import ALL, examples
from troubled import CASES, Case

from vllm_mods.base.model import ModPlan, Verdict
from vllm_mods.planning.planner import plan

IN = {Verdict.APPLIED, Verdict.UPSTREAM}
MANY = settings(
    max_examples=examples(120),
    # Not all that is right is known of a case: who asks for more than a sample looks at what fails.
    derandomize=not ALL,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def seen(case: Case, data: bytes, *, pristine: bool = True) -> ModPlan:
    one = mod(variant(case.patch))
    (planned,) = plan([one], MemoryTree({case.path: data}, pristine=pristine)).mods
    return planned


def made(planned: ModPlan, before: bytes) -> bytes:
    return next((change.after or b"" for change in planned.changes), before)


def has_index(case: Case) -> bool:
    return b"\nindex " in case.patch


@pytest.mark.slow
@MANY
@given(CASES)
def test_on_its_own_file_a_patch_goes_in_with_exactly_its_result(case: Case) -> None:
    planned = seen(case, case.base)
    event(f"{case.form}: {planned.verdict.value}")
    if planned.verdict.writes:
        assert made(planned, case.base) == case.after
    if has_index(case):
        # that code comes to stand twice, or that a file is no Python, is for others to say
        assert planned.verdict in {Verdict.APPLIES, Verdict.UNFIT, Verdict.UNREADABLE}
    assert planned.verdict not in IN | {Verdict.CONFLICT, Verdict.PARTIAL}


@pytest.mark.slow
@MANY
@given(CASES)
def test_on_its_result_a_patch_is_seen_as_in(case: Case) -> None:
    planned = seen(case, case.after)
    event(f"{case.form}: {planned.verdict.value}")
    assert not planned.verdict.writes
    if has_index(case):
        assert planned.verdict in IN | {Verdict.UNREADABLE}


@pytest.mark.slow
@MANY
@given(CASES)
def test_on_another_file_a_patch_goes_where_it_belongs_or_is_refused(case: Case) -> None:
    planned = seen(case, case.target)
    event(planned.verdict.value)
    if not planned.verdict.writes:
        return
    result = made(planned, case.target)
    if result in case.truths:
        event("right, as is known of the blocks")
    elif not case.base.endswith(b"\n") and len(case.by_text) == 1:
        event(
            "right, as only one place ends as the patch has it, which the merge and git apply overlook"
        )
        assert result in case.by_text
    elif case.merged is not None and case.same_scopes(case.merged):
        event("right, as the merge has it")
        assert result == case.merged
    elif case.by_git is not None and case.same_scopes(case.by_git):
        event("right, as far as git apply and the scopes tell")
        assert result == case.by_git
    elif case.same_scopes(result):
        event("right, where the merge and git apply took a string for the code")
        assert result in case.by_text
    else:
        # what nothing but its text places is said to be so
        assert result == case.by_git
        assert "unique" in {hunk.proof for hunk in planned.hunks}


@pytest.mark.slow
@MANY
@given(CASES)
def test_what_is_said_to_be_in_is_in(case: Case) -> None:
    planned = seen(case, case.target)
    event(planned.verdict.value)
    if planned.verdict in IN:
        assert case.known_in or case.target == case.merged or case.target in case.truths


@pytest.mark.slow
@MANY
@given(CASES)
def test_a_release_is_never_half_applied_and_an_edited_tree_gets_the_same_bytes(case: Case) -> None:
    release = seen(case, case.target)
    edited = seen(case, case.target, pristine=False)
    assert release.verdict is not Verdict.PARTIAL
    assert release.changes == edited.changes
    assert (release.verdict in IN) == (edited.verdict in IN)


FAMILIES = {
    "added at the end": 30,
    "another file": 100,
    "at the end": 100,
    "at the start": 80,
    "bare": 50,
    "code in a string": 40,
    "crlf": 15,
    "deleted at the end": 20,
    "empty": 10,
    "form feed": 15,
    "name twice": 100,
    "name twice in the target": 100,
    "no last line end": 30,
    "not python": 30,
    "one line": 8,
    "several hunks": 30,
    "stamped": 15,
    "text twice": 20,
    "text twice in the target": 15,
}
"""Of 300 cases, how many have to be of each family."""


@pytest.mark.skipif(not ALL, reason="a sample says nothing of all families: VLLM_MODS_TEST_ALL=1")
def test_the_generator_meets_every_family() -> None:
    met: Counter[str] = Counter()

    @settings(MANY, max_examples=300, database=None, derandomize=True, phases=[Phase.generate])
    @given(CASES)
    def draw(case: Case) -> None:
        met.update(case.families)
        met["the truth is known"] += bool(case.truths)

    draw()
    assert met["the truth is known"] >= 100
    assert {name: met[name] for name, least in FAMILIES.items() if met[name] < least} == {}
    assert set(met) == {*FAMILIES, "the truth is known"}
