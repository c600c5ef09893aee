"""Hunks that stand at the lines that the patch states, though nothing else proves these: what rules them out."""

from __future__ import annotations

import pytest

from vllm_mods.formats.diff import FileDiff, parse
from vllm_mods.placing import locate
from vllm_mods.placing.answers import BaseKnown, Located, Lost
from vllm_mods.placing.target import Target

FIVE = ["alpha(alpha)", "beta(beta)", "gamma(gamma)", "delta(delta)", "omega(omega)"]


def file(line: int, *lines: str) -> FileDiff:
    old, new = (sum(one[0] != kind for one in lines) for kind in "+-")
    text = f"--- a/x.txt\n+++ b/x.txt\n@@ -{line},{old} +{line},{new} @@\n"
    (made,) = parse((text + "\n".join([*lines, ""])).encode(), "x.patch")
    return made


def filler(count: int) -> list[str]:
    return [f"number_{n} = {n} * {n}" for n in range(count)]


def place(made: FileDiff, lines: list[str], base: BaseKnown) -> Located | Lost:
    (answer,) = locate.place(
        made, Target("".join(f"{one}\n" for one in lines).encode(), None), base=base
    )
    return answer


CHANGE = (
    " alpha(alpha)",
    " beta(beta)",
    "-gamma(gamma)",
    "+new()",
    " delta(delta)",
    " omega(omega)",
)
STATED = Located(1, "", "stated")


@pytest.mark.parametrize(("apart", "is_stated"), [(39, False), (40, False), (41, True), (90, True)])
def test_another_place_is_too_far_away_to_have_come_there(apart: int, *, is_stated: bool) -> None:
    lines = [*FIVE, *filler(apart - 5), *FIVE]
    for made in (file(1, *CHANGE), file(1 + apart, *CHANGE)):
        answer = place(made, lines, BaseKnown.VERSION)
        if is_stated:
            assert answer == STATED._replace(line=made.hunks[0].old_start)
        else:
            assert isinstance(answer, Lost)
            assert (answer.code, answer.lines) == ("ambiguous", (1, 1 + apart))
    assert isinstance(place(file(1, *CHANGE), lines, BaseKnown.NONE), Lost)
    assert place(file(1, *CHANGE), lines, BaseKnown.RELEASED) == STATED
    assert isinstance(place(file(2, *CHANGE), lines, BaseKnown.RELEASED), Lost)


@pytest.mark.parametrize(("apart", "is_stated"), [(11, False), (12, False), (13, True), (30, True)])
def test_what_only_resembles_it_is_nearer(apart: int, *, is_stated: bool) -> None:
    like = ["changed = True", *FIVE[1:]]
    lines = [*FIVE, *filler(apart - 6), *like]
    answer = place(file(1, *CHANGE), lines, BaseKnown.VERSION)
    assert isinstance(answer, Located) is is_stated
    if isinstance(answer, Lost):
        assert (answer.code, answer.lines) == ("look-alike", (1, 1 + apart))
    assert isinstance(place(file(1, *CHANGE), lines, BaseKnown.NONE), Lost)
    assert place(file(1, *CHANGE), lines, BaseKnown.RELEASED) == STATED


def test_what_would_undo_it_may_not_stand_there_as_well() -> None:
    made = file(1, " int()", "+int()", " int()")
    lines = ["int()"] * 9
    for base in BaseKnown:
        assert isinstance(place(made, lines, base), Lost)


def test_so_few_lines_prove_no_place_in_a_file_of_unknown_origin() -> None:
    made = file(1, " if x:", "-one()", "+two()", " }")
    lines = ["if x:", "one()", "}", *filler(3)]
    assert isinstance(place(made, lines, BaseKnown.NONE), Lost)
    for base in (BaseKnown.VERSION, BaseKnown.RELEASED):
        assert place(made, lines, base) == STATED
    longer = file(1, " if x:", " zero()", "-one()", "+two()", " }")
    assert place(longer, [lines[0], "zero()", *lines[1:]], BaseKnown.NONE) == STATED
