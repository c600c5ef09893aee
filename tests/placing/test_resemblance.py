"""How much of a hunk another place has: its lines, in their order, close together, changed ones in part."""

from __future__ import annotations

import pytest

from vllm_mods.placing.resemblance import LookAlike, look_alikes, telling
from vllm_mods.placing.target import Target

NOWHERE = range(0)
TEN = [f"value_{name} = compute_{name}(1)\n" for name in "abcdefghij"]
OTHER = "while queue: queue.pop()\n"


def alike(
    expected: list[str], there: list[str], own: range = NOWHERE
) -> list[tuple[float, int, int, tuple[int, ...]]]:
    target = Target("".join(there).encode(), None)
    found = look_alikes([one.encode() for one in expected], target, own)
    return [(round(one.score, 2), *one[1:]) for one in found]


def test_lines_with_a_word_tell_something() -> None:
    lines = [b"  a\n", b")\n", b"\n", b"\t_\n", b"# -\n", b"1,\n"]
    assert telling(lines) == [(0, b"a"), (3, b"_"), (5, b"1,")]


def test_a_place_has_the_lines_at_whatever_indent() -> None:
    there = [OTHER, *("    " + one for one in TEN[:3]), OTHER]
    assert alike(TEN[:3], there) == [(1.0, 2, 0, (2, 3, 4))]
    assert alike(TEN[:3], there, range(2, 5)) == []
    assert look_alikes([b"a\n"], Target(b"a\n", None), NOWHERE) == [LookAlike(1.0, 1, 0, (1,))]


@pytest.mark.parametrize(("kept", "score"), [(10, 1.0), (9, 0.9), (8, 0.8), (7, None), (6, None)])
def test_more_than_seven_tenths_of_the_lines_are_needed(kept: int, score: float | None) -> None:
    for there in (TEN[:kept], TEN[-kept:], [*TEN[: kept - 3], OTHER, *TEN[-3:]]):
        found = alike(TEN, [OTHER, *there, OTHER])
        assert [one[0] for one in found] == ([] if score is None else [score])


def test_where_each_line_stands_is_told_and_0_for_one_that_does_not() -> None:
    assert alike(TEN, [OTHER, *TEN[2:]]) == [(0.8, 2, 2, (0, 0, *range(2, 10)))]
    there = [*TEN[:4], OTHER, *TEN[5:]]
    assert alike(TEN, there) == [(0.9, 1, 0, (1, 2, 3, 4, 0, 6, 7, 8, 9, 10))]


def test_lines_count_in_their_order_alone() -> None:
    assert alike(TEN, [*TEN[1:], TEN[0]]) == [(0.9, 1, 1, (0, *range(1, 10)))]
    assert alike(TEN, TEN[::-1]) == []
    assert alike(TEN, [*TEN[5:], *TEN[:5]]) == []


@pytest.mark.parametrize(
    ("line", "other", "share"),
    [
        ("return self.make(one, two)", "return self.make(one, two)", 1.0),
        ("return self.make(one, two)", "return self.make(one, six)", 0.9),
        ("a b c d e", "a b c x y", 0.6),
        ("a b c d e", "a b x y z", None),
        ("a a b b c", "a a b b d", 0.8),
        ("a a a a a", "a a a b c", 0.6),
        ("a a a a a", "a a b c d", None),
        ("a.b.c.d.e", "a b c d e", 0.71),
    ],
)
def test_a_changed_line_counts_by_what_it_has_still(
    line: str, other: str, share: float | None
) -> None:
    expected = [*TEN[:3], f"{line}\n"]
    (found,) = alike(expected, [*TEN[:3], f"{other}\n"])
    assert found[0] == round((3 + (share or 0)) / 4, 2)
    assert found[3] == (1, 2, 3, 4 if share else 0)


def test_a_line_of_another_length_is_another_one() -> None:
    short = "f(a)"
    for long, is_like in (("f(a),", True), (f"f(a){' ' * 4},", True), (f"f(a){' ' * 5},", False)):
        ((score, *_),) = alike([*TEN[:3], f"{short}\n"], [*TEN[:3], f"{long}\n"])
        ((back, *_),) = alike([*TEN[:3], f"{long}\n"], [*TEN[:3], f"{short}\n"])
        assert (score > 0.75) is (back > 0.75) is is_like


def test_what_was_put_in_between_keeps_no_place_from_being_like_it() -> None:
    for between, is_like in ((6, True), (7, True), (9, False)):
        there = [*TEN[:2], *[OTHER] * between, *TEN[2:4]]
        whole = (1.0, 1, 0, (1, 2, between + 3, between + 4))
        assert (whole in alike(TEN[:4], there)) is is_like
        assert is_like or alike(TEN[:4], there) == []


def test_the_place_that_has_more_comes_first_then_the_first_one() -> None:
    less = [*TEN[:9], OTHER]
    apart = [OTHER] * 12
    there = [*less, *apart, *TEN, *apart, *less]
    found = [(score, line) for score, line, *_ in alike(TEN, there)]
    assert found == [(1.0, 23), (0.9, 1), (0.9, 45)]
    own = [(score, line) for score, line, *_ in alike(TEN, there, range(23, 33))]
    assert own == [(0.9, 1), (0.9, 45)]
