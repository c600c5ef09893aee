"""What stands in the way of a merge by scopes: each problem with its scope, and the words that say what it is."""

from __future__ import annotations

import pytest

from vllm_mods.base import diff3
from vllm_mods.base.diff3 import Clash
from vllm_mods.porting import outline, structure
from vllm_mods.porting.structure import Ported

F, G = "def f(x):\n    return 1\n", "def g(x):\n    return 1\n"
NEW = "def n(x):\n    return 5\n"


def merged(base: str, ours: str, theirs: str) -> Ported:
    sides = [outline.read(text.encode()) for text in (base, ours, theirs)]
    first, second, third = (one for one in sides if one is not None)
    return structure.merge(first, second, third, diff3.merge)


def changed(text: str, number: int = 2) -> str:
    return text.replace("return 1", f"return {number}")


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "wanted", "touched"),
    [
        (F, changed(F), F, changed(F), ["f"]),
        (F, changed(F), changed(F), changed(F), ["f"]),
        (F, F, changed(F), changed(F), []),
        (F + G, changed(F) + G, G + F, G + changed(F), ["f"]),
        (F, F + NEW, F, F + NEW, [""]),
        (F, F + NEW, F + NEW, F + NEW, [""]),
        (F + G, G, F + G, G, [""]),
        (F, F + NEW, changed(F), changed(F) + NEW, [""]),
        ("class A:\n    X = 1\n", "class A:\n    X = 2\n", "Y\nclass A:\n    X = 1\n",
         "Y\nclass A:\n    X = 2\n", ["A"]),
    ],
)  # fmt: skip
def test_what_is_in_a_definition_meets_its_namesake(
    base: str, ours: str, theirs: str, wanted: str, touched: list[str]
) -> None:
    done = merged(base, ours, theirs)
    assert (done.text, done.problems) == (wanted.encode(), ())
    assert list(done.touched) == touched


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "problems"),
    [
        (F, changed(F), changed(F, 3), [("clash", "f", "the target changed the same lines")]),
        (F + G, changed(F) + G, G, [("gone", "f", "the target has no such class or function")]),
        (
            *(F, changed(F), F + F),
            [
                (
                    "ambiguous",
                    "f",
                    "the target defines f 2 times, but the base (where the patch was made) 1",
                )
            ],
        ),
        (
            *(F + G, G, changed(F) + G),
            [("removed", "f", "the mod removes code that the target changed")],
        ),
        (
            *(F, F + NEW, F + NEW.replace("5", "6")),
            [
                (
                    "both-add",
                    "n",
                    "the mod and the target both add a definition of this name, and the two differ",
                )
            ],
        ),
        (
            "class A:\n    def f(self):\n        return 1\n",
            "class A:\n    def f(self):\n        return 2\n",
            "class A:\n    pass\n",
            [("gone", "A.f", "the target has no such class or function")],
        ),
        (
            *("a\nb\nc\nd\n", "a\nlonger = 1\nb\nc\nd\n", "a\nb\nc\nlonger = 1\nd\n"),
            [
                (
                    *("twice", ""),
                    "the target already has these lines at another place; `port` does not add them twice",
                )
            ],
        ),
    ],
)
def test_what_is_not_certain_is_named_with_its_scope(
    base: str, ours: str, theirs: str, problems: list[tuple[str, str, str]]
) -> None:
    done = merged(base, ours, theirs)
    assert done.text is None
    assert [(one.code, one.scope, one.message) for one in done.problems] == problems


def test_lines_that_say_nothing_may_be_there_twice() -> None:
    done = merged("a\nb\nc\nd\n", "a\n#\nb\nc\nd\n", "a\nb\nc\n#\nd\n")
    assert done.text == b"a\n#\nb\nc\n#\nd\n"


def test_a_clash_stands_with_whole_definitions_between_what_was_merged() -> None:
    done = merged(f"x = 1\n{F}y = 1\n", f"x = 2\n{NEW}y = 1\n", f"x = 3\n{F}y = 1\n")
    clashes = [one for one in done.stretches if isinstance(one, Clash)]
    assert [b"".join(one.ours) for one in clashes] == [f"x = 2\n{NEW}".encode()]
    assert [b"".join(one.base) for one in clashes] == [f"x = 1\n{F}".encode()]
    assert all(
        isinstance(one, Clash) or isinstance(other, Clash)
        for one, other in zip(done.stretches, done.stretches[1:], strict=False)
    )
