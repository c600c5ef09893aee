"""What a merge by statements refuses by itself, before the merge backwards is asked."""

from __future__ import annotations

import ast

import pytest

from vllm_mods.base import line_diff
from vllm_mods.porting import brackets, layout, suites
from vllm_mods.porting.layout import BothChangedError, Side, Splice


def side(text: str) -> Side:
    return Side(text.encode(), ast.parse(text).body[0], 1)


def test_edits_that_meet_are_refused() -> None:
    one = side("f(a, b, c)\n")
    assert layout.edit_text(one, [Splice(2, 5, b""), Splice(5, 8, b"")]) == b"f(c)\n"
    with pytest.raises(BothChangedError):
        layout.edit_text(one, [Splice(2, 6, b""), Splice(5, 8, b"")])


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param("f(a=1, b=2)\n", "f(b=2)\n", "f(a=3, b=2)\n", id="takes-out"),
        pytest.param("f(a=1, b=2)\n", "f(a=3, b=2)\n", "f(b=2)\n", id="is-taken-out"),
        pytest.param(
            "def f(a=1): pass\n", "def f(a=2): pass\n", "def f(a=3): pass\n", id="default"
        ),
    ],
)
def test_one_element_that_both_change_is_refused(base: str, ours: str, theirs: str) -> None:
    with pytest.raises(BothChangedError):
        brackets.merge(side(base), side(ours), side(theirs), back=False)


def test_two_statements_on_a_line_are_refused() -> None:
    text = "a = 1; b = 2\n"
    with pytest.raises(BothChangedError):
        suites.read(ast.parse(text).body, line_diff.split(text.encode()), 1)
