"""Lines that two texts have in common: first those that stand once in each, then the longest runs."""

from __future__ import annotations

import pytest

from vllm_mods.base import line_diff


def lines(letters: str) -> list[bytes]:
    return [letter.encode() for letter in letters]


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ("abc", "abc", "aa bb cc"),
        ("", "abc", ""),
        ("abc", "", ""),
        ("abc", "xbc", "bb cc"),
        ("abc", "abx", "aa bb"),
        ("axc", "ayyc", "aa cc"),
        ("xay", "pqars", "aa"),
        # the longest run in order, whatever moved over it
        ("xabcy", "pcabq", "aa bb"),
        ("xcaby", "pabcq", "aa bb"),
        # between what stands once, and behind it
        ("xaooby", "paoobq", "aa oo oo bb"),
        ("xaoop", "yaooq", "aa oo oo"),
        ("xooay", "pooaq", "oo oo aa"),
        # none stands once: the longest equal run
        ("xoopoo", "yoooq", "oo oo oo"),
        ("oo", "ooo", "oo oo"),
    ],
)
def test_lines_stay_that_stand_once_and_what_is_like_around_them(
    before: str, after: str, pairs: str
) -> None:
    stay = line_diff.matching(lines(before), lines(after))
    assert " ".join(before[i] + after[k] for i, k in stay) == pairs
    assert stay == sorted(set(stay))
    assert [k for _, k in stay] == sorted({k for _, k in stay})


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        ("abc", "abc", []),
        ("abc", "axc", [(1, 2, 1, 2)]),
        ("abc", "ac", [(1, 2, 1, 1)]),
        ("ac", "abc", [(1, 1, 1, 2)]),
        ("abc", "xbcy", [(0, 1, 0, 1), (3, 3, 3, 4)]),
        ("", "ab", [(0, 0, 0, 2)]),
        ("abcd", "xcdyy", [(0, 2, 0, 1), (4, 4, 3, 5)]),
    ],
)
def test_a_change_is_what_stood_there_and_what_stands_there_now(
    before: str, after: str, places: list[tuple[int, int, int, int]]
) -> None:
    assert [*line_diff.changes(lines(before), lines(after))] == places


def test_only_line_feeds_end_lines() -> None:
    assert line_diff.split(b"a\r\x0cb\n\nc") == (b"a\r\x0cb\n", b"\n", b"c")
    assert line_diff.split(b"") == ()
