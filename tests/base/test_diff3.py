"""Three-way merges: what one side changed is taken, what both changed in their own way is a clash."""

from __future__ import annotations

import pytest

from vllm_mods.base import diff3
from vllm_mods.base.diff3 import Clash

BASE = b"a\nb\nc\nd\ne\n"


def merged(ours: bytes, theirs: bytes, base: bytes = BASE) -> list[tuple[bytes, ...] | Clash]:
    sides = (one.splitlines(keepends=True) for one in (base, ours, theirs))
    return diff3.merge(*sides)


@pytest.mark.parametrize(
    ("ours", "theirs", "result"),
    [
        (BASE, BASE, BASE),
        (b"a\nB\nc\nd\ne\n", BASE, b"a\nB\nc\nd\ne\n"),
        (BASE, b"a\nb\nc\nd\n", b"a\nb\nc\nd\n"),
        (b"A\nb\nc\nd\ne\n", b"a\nb\nc\nd\nE\n", b"A\nb\nc\nd\nE\n"),
        (b"a\nB\nc\nd\ne\n", b"a\nB\nc\nd\ne\n", b"a\nB\nc\nd\ne\n"),
        (b"0\n" + BASE, BASE + b"f\n", b"0\n" + BASE + b"f\n"),
        (b"", BASE, b""),
        # in its own way, and beside each other
        (b"a\nB\nc\nd\ne\n", b"a\n2\nc\nd\ne\n", None),
        (b"a\nB\nc\nd\ne\n", b"a\nb\nC\nd\ne\n", None),
        (b"a\nc\nd\ne\n", b"a\nB\nc\nd\ne\n", None),
        (BASE + b"f\n", BASE + b"g\n", None),
    ],
)
def test_what_one_side_changed_is_taken(ours: bytes, theirs: bytes, result: bytes | None) -> None:
    assert diff3.clean(merged(ours, theirs)) == result
    assert diff3.clean(merged(theirs, ours)) == result


def test_a_clash_is_the_lines_of_all_three_between_what_is_stable() -> None:
    assert merged(b"a\nB\nc\nd\ne\n", b"a\n2\nc\nd\nE\n") == [
        (b"a\n",),
        Clash((b"B\n",), (b"b\n",), (b"2\n",)),
        (b"c\n", b"d\n", b"E\n"),
    ]
    assert merged(b"x", b"y", b"") == [Clash((b"x",), (), (b"y",))]


def test_a_clash_is_marked_as_git_does() -> None:
    text = diff3.marked(merged(b"a\nB\nc\nd\ne\n", b"a\n2\nc\nd\ne\n"), "mine", "0.19", "0.20")
    assert text == (b"a\n<<<<<<< mine\nB\n||||||| 0.19\nb\n=======\n2\n>>>>>>> 0.20\nc\nd\ne\n")
    last = diff3.marked(merged(b"x", b"y\n", b"z"), "a", "b", "c")
    assert last == b"<<<<<<< a\nx\n||||||| b\nz\n=======\ny\n>>>>>>> c\n"
