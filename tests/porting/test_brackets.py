"""What the mod adds to a bracket of a statement that the target changed too: where it goes, and what is refused."""

from __future__ import annotations

import ast

import pytest

from vllm_mods.base import line_diff
from vllm_mods.porting import brackets, suites
from vllm_mods.porting.suites import BothChangedError, KeyedStatement


def statement(text: str) -> KeyedStatement:
    (keyed,) = suites.read(ast.parse(text).body, line_diff.split(text.encode()), 1).values()
    return keyed


def added(base: str, ours: str, theirs: str, *, back: bool = False) -> str | None:
    sides = [statement(f"{one}\n" if one[-1] != "\n" else one) for one in (base, ours, theirs)]
    try:
        return brackets.add(sides[0], sides[1], sides[2], back=back).decode().rstrip("\n")
    except BothChangedError:
        return None


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "wanted"),
    [
        ("f(a=1)", "f(a=1, m=2)", "f(a=3)", "f(a=3, m=2)"),
        ("f(a=1)", "f(m=2, a=1)", "f(a=3)", "f(m=2, a=3)"),
        ("f(a=1, b=1)", "f(a=1, m=2, n=3, b=1)", "f(a=1, b=4)", "f(a=1, m=2, n=3, b=4)"),
        ("f(a=1, b=1)", "f(a=1, m=2, b=1)", "f(b=4)", "f(m=2, b=4)"),
        ("f(a=1, b=1)", "f(a=1, m=2, b=1)", "f(a=1, t=5)", "f(a=1, t=5, m=2)"),
        ("x = [1, 2]", "x = [1, 2, 3]", "x = [1, 2, 4]", "x = [1, 2, 4, 3]"),
        ("x = {1, 2}", "x = {1, 2, 3}", "x = {0, 1, 2}", "x = {0, 1, 2, 3}"),
        ("x = {'a': 1}", "x = {'a': 1, 'm': 2}", "x = {'a': 3}", "x = {'a': 3, 'm': 2}"),
        ("from a import b", "from a import b, m", "from a import b, t", "from a import b, t, m"),
        (
            "x: L['a', 'b']",
            "x: L['a', 'b', 'm']",
            "x: L['a', 'b', 't']",
            "x: L['a', 'b', 't', 'm']",
        ),
        ("f(g(a=1), k=2)", "f(g(a=1, m=3), k=2)", "f(g(a=4), k=2)", "f(g(a=4, m=3), k=2)"),
        ("f(é=1)", "f(é=1, ö=2)", "f(é=3)", "f(é=3, ö=2)"),
        ("f(a=1)", "f(m=2, n=3, a=1)", "f(a=4)", "f(m=2, n=3, a=4)"),
        # in lines of their own
        (
            "f(\n    a=1,\n)",
            "f(\n    a=1,\n    m=2,\n    n=3,\n)",
            "f(\n    a=4,\n)",
            "f(\n    a=4,\n    m=2,\n    n=3,\n)",
        ),
        (
            "f(\n    a=1,\n)",
            "f(\n    m=2,\n    n=3,\n    a=1,\n)",
            "f(\n    a=4,\n)",
            "f(\n    m=2,\n    n=3,\n    a=4,\n)",
        ),
        (
            "f(\n    a=1,  # one\n)",
            "f(\n    a=1,  # one\n    m=2,\n)",
            "f(\n    a=3,  # one\n)",
            "f(\n    a=3,  # one\n    m=2,\n)",
        ),
        (
            "f(\n    a=1\n)",
            "f(\n    a=1,\n    m=2\n)",
            "f(\n    a=3\n)",
            "f(\n    a=3,\n    m=2,\n)",
        ),
        (
            "f(\n    a=1,\n)",
            "f(\n    m=2,\n    a=1,\n)",
            "f(\n    a=3,\n)",
            "f(\n    m=2,\n    a=3,\n)",
        ),
        ("f(\n    a=1,\n)", "f(\n    a=1,\n    m=2,\n)", "f(a=3)", "f(a=3, m=2)"),
        ("f(a=1)", "f(a=1, m=2)", "f(\n    a=3, b=4)", "f(\n    a=3, b=4, m=2)"),
        ("f(a=1)", "f(m=2, a=1)", "f(\n    a=3, b=4)", "f(\n    m=2, a=3, b=4)"),
    ],
)
def test_an_element_goes_beside_the_neighbour_that_is_there(
    base: str, ours: str, theirs: str, wanted: str
) -> None:
    assert added(base, ours, theirs) == wanted


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        # something else is changed, too
        ("f(a=1)", "f(a=2, m=2)", "f(a=3)"),
        ("f(a=1)", "g(a=1, m=2)", "f(a=3)"),
        ("f(a=1)", "f(m=2)", "f(a=3)"),
        ("f(a=1, b=1)", "f(b=1, a=1, m=2)", "f(a=3, b=1)"),
        ("f(g(a=1), k=1)", "f(g(a=1, m=2), k=2)", "f(g(a=3), k=1)"),
        ("f(a=1)", "f(a=1, m=2)", "f(a=3)[0]"),
        ("f(a=1)", "f(a=1, m=2)", "g(a=3)"),
        # at two places
        ("f(a=1, b=1)", "f(m=2, a=1, n=2, b=1)", "f(a=3, b=1)"),
        # it is there, or nothing beside it is
        ("f(a=1)", "f(a=1, m=2)", "f(a=1, m=3)"),
        ("f(a=1)", "f(a=1, m=2)", "f(b=1)"),
        ("f(a=1)", "f(a=1, m=2)", "f()"),
        # two of one key
        ("x = [1, 1]", "x = [1, 1, 2]", "x = [1, 1, 3]"),
        ("x = {**a, 'b': 1}", "x = {**a, 'b': 1, 'm': 2}", "x = {**a, 'b': 3}"),
        # a comment, or several lines
        ("f(\n    a=1,\n)", "f(\n    a=1,\n    m=2,  # why\n)", "f(\n    a=3,\n)"),
        ("f(a=1)", "f(a=1, m=[\n    2])", "f(a=3)"),
        (
            "f(\n    a=1,\n    b=1,\n)",
            "f(\n    m=2,\n    a=1,\n    b=1,\n)",
            "f(\n    # of a\n    a=1,\n    b=3,\n)",
        ),
    ],
)
def test_what_is_not_certain_is_refused(base: str, ours: str, theirs: str) -> None:
    assert added(base, ours, theirs) is None


def test_on_the_way_back_an_element_may_stand_at_the_end() -> None:
    assert added("f(a=1)", "f(a=1, m=2)", "f(b=1)", back=True) == "f(b=1, m=2)"
    assert added("f(a=1)", "f(a=1, m=2)", "f()", back=True) is None
