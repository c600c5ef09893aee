"""What speaks against a place although a hunk's text stands there: each doubt alone."""

from __future__ import annotations

import pytest
from mod_making import diff_of

from vllm_mods.formats.diff import Hunk, parse
from vllm_mods.placing import doubts
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.placing.target import Target


def hunk(*lines: str) -> Hunk:
    old, new = (sum(line[0] != kind for line in lines) for kind in "+-")
    text = f"--- a/x.py\n+++ b/x.py\n@@ -9,{old} +9,{new} @@"
    (file,) = parse("\n".join([text, *lines, ""]).encode(), "x.patch")
    return file.hunks[0]


def target(*lines: str) -> Target:
    return Target("".join(f"{line}\n" for line in lines).encode(), read_scopes)


ABOVE = hunk("+x = 1", "+y = 2", " b = 3")
BELOW = hunk(" b = 3", "+x = 1", "+y = 2")


@pytest.mark.parametrize(
    ("made", "lines", "line", "repeats"),
    [
        (ABOVE, ("x = 1", "y = 2", "b = 3"), 3, True),
        (ABOVE, ("x = 1", "y = 2", "", ")", "b = 3"), 5, True),
        (ABOVE, ("y = 2", "x = 1", "b = 3"), 3, True),
        (ABOVE, ("x = 1", "y = 2", "z = 0", "b = 3"), 4, False),
        (ABOVE, ("y = 2", "b = 3"), 2, False),
        (ABOVE, ("y = 2", "y = 2", "b = 3"), 3, False),
        (BELOW, ("b = 3", "x = 1", "y = 2"), 1, True),
        (BELOW, ("b = 3", "# -", "x = 1", "y = 2"), 1, True),
        (BELOW, ("b = 3", "x = 1"), 1, False),
        (BELOW, ("b = 3",), 1, False),
        (BELOW, ("b = 3", "z = 0", "x = 1", "y = 2"), 1, False),
        (BELOW, ("x = 1", "y = 2", "z = 0", "b = 3", "a"), 4, False),
        # of its own context a line was there when the patch was written
        (hunk(" x = 1", "+x = 1", " b = 3"), ("x = 1", "b = 3"), 1, False),
        (hunk(" x = 1", "+x = 1", " b = 3"), ("x = 1", "x = 1", "b = 3"), 2, False),
        (hunk(" y = 2", "+x = 1", "+y = 2", " b = 3"), ("x = 1", "y = 2", "b = 3"), 2, True),
        # four of five are most of them
        (hunk(*(f"+{n} = {n}" for n in "abcde"), " z"), ("b = b", "c = c", "d = d", "e = e", "z"), 5, True),
        (hunk(*(f"+{n} = {n}" for n in "abcde"), " z"), ("c = c", "d = d", "e = e", "z"), 4, False),
        (hunk("+)", " z"), (")", "z"), 2, False),
    ],
)  # fmt: skip
def test_lines_that_stand_directly_beside_the_place_are_repeated(
    made: Hunk, lines: tuple[str, ...], line: int, *, repeats: bool
) -> None:
    assert doubts.repeats(made, target(*lines), line) is repeats


IN_F = hunk(" def f():", "     a", "+    x = 1", "+    y = 2", "     b")
SIX = tuple(f"    v{n} = {n}" for n in range(6))
LONG = hunk("     a", *(f"+{one}" for one in SIX), "     b")


@pytest.mark.parametrize(
    ("made", "lines", "has"),
    [
        (IN_F, ("def f():", "    a", "    b", "    x = 1", "    y = 2"), True),
        (IN_F, ("def f():", "    a", "    b", "    x = 1", "    c", "    y = 2"), True),
        (IN_F, ("def f():", "    a", "    b", "    x = 1"), False),
        (IN_F, ("def f():", "    a", "    b", "    x = 1", *"    c" * 4, "    y = 2"), False),
        (IN_F, ("def f():", "    a", "    b", "", "def g():", "    x = 1", "    y = 2"), False),
        (hunk(" def f():", "+    x = 1", "     a"), ("def f():", "    a", "    x = 1"), False),
        (LONG, ("def f():", "    a", "    b", *SIX[:3]), True),
        (LONG, ("def f():", "    a", "    b", *SIX[:2]), False),
        (hunk("     a", "-    x = 1", "+    x = 1", "+    y = 2", "     b"),
         ("def f():", "    a", "    x = 1", "    b", "    x = 1", "    y = 2"), False),
    ],
)  # fmt: skip
def test_an_insertion_that_stands_in_the_block_already_is_added_once(
    made: Hunk, lines: tuple[str, ...], *, has: bool
) -> None:
    there = target(*lines)
    assert doubts.has_added(made, there, 2 if made.lines[0][1].startswith(b" ") else 1) is has


def back(before: str, after: str) -> Hunk:
    """Return a removal as it is asked for where it is in already."""
    (file,) = parse(diff_of("x.py", before, after, context=1), "x.patch")
    return file.hunks[0].reversed()


def test_blank_lines_alone_tell_nothing_but_at_an_edge() -> None:
    assert doubts.leaves_blanks(back("a\n\nx\n\nb\n", "a\n\n\nb\n"))
    assert not doubts.leaves_blanks(back("a\nx\n\nb\n", "a\n\nb\n"))
    assert not doubts.leaves_blanks(back("x\n\nb\n", "\nb\n"))
    assert not doubts.leaves_blanks(back("b\n\nx\n", "b\n\n"))


@pytest.mark.parametrize(
    ("lines", "line", "overlaps"),
    [
        (("a", "x", "b"), 1, False),
        (("a", "x", "b", "a", "y", "b"), 1, False),
        (("a", "y", "b", "a", "x", "b"), 4, False),
        (("a", "a", "a"), 1, True),
        (("a", "a", "a"), 2, True),
    ],
)
def test_what_a_hunk_leaves_may_stand_where_its_text_does(
    lines: tuple[str, ...], line: int, *, overlaps: bool
) -> None:
    made = hunk(" a", "-x", "+y", " b") if "x" in lines else hunk(" a", "+a", " a")
    assert doubts.overlaps(made, target(*lines), line) is overlaps


# --- of what a mod removed ----------------------------------------------------------------------------


def left(before: str, after: str, now: str, line: int, *, context: int = 1) -> bool:
    (file,) = parse(diff_of("x.py", before, after, context=context), "x.patch")
    undone = file.reversed()
    (one,) = undone.hunks
    there = target(*now.splitlines())
    assert list(one.old) == list(there.lines[line - 1 : line - 1 + len(one.old)])
    return doubts.is_left(one, undone, there, line)


KEPT = "def f():\n    a = 1\n    b = 2\n    c = 3\n"
BEFORE = KEPT.replace("    b", "    x = 1\n    b")


@pytest.mark.parametrize(
    ("now", "line", "is_left"),
    [
        (KEPT, 2, False),
        (f"{KEPT}    x = 1\n", 2, True),
        (f"{KEPT}    x = 1", 2, True),
        (f"def z():\n    pass\n\n\n{KEPT}    x = 1\n", 6, True),
        (f"def z():\n    x = 1\n    pass\n\n\n{KEPT}", 7, False),
        ("def f():\n    x = 1\n    a = 1\n    b = 2\n", 3, True),
        (f"{KEPT}\n\ndef g():\n    d = 4\n    x = 1\n", 2, False),
        (f"{KEPT}    if c:\n        x = 1\n", 2, False),
        (f"{KEPT}x = 1\n", 2, False),
    ],
)
def test_a_removed_line_that_its_scope_has_elsewhere_was_moved(
    now: str, line: int, *, is_left: bool
) -> None:
    assert left(BEFORE, KEPT, now, line) is is_left


TOP = "a = 1\nb = 2\n"


@pytest.mark.parametrize(
    ("now", "is_left"),
    [
        (TOP, False),
        (f"{TOP}def g():\n    pass\n\nx = 1\n", True),
        (f"{TOP}def g():\n    x = 1\n", False),
        (f"{TOP}class A:\n    x = 1\n", False),
    ],
)
def test_a_removed_line_of_the_module_may_be_anywhere_in_it(now: str, *, is_left: bool) -> None:
    assert left("a = 1\nx = 1\nb = 2\n", TOP, now, 1) is is_left


def test_what_a_hunk_puts_back_was_not_removed() -> None:
    rows = [f"{name} = {n}\n" for n, name in enumerate("abcdef")]
    before = "".join([rows[0], "x = 1\n", *rows[1:]])
    after = "".join([*rows[:5], "x = 1\n", rows[5]])
    (file,) = parse(diff_of("x.py", before, after, context=1), "x.patch")
    undone = file.reversed()
    there = target(*after.splitlines())
    lines = (1, 5)
    answers = [
        doubts.is_left(one, undone, there, line)
        for one, line in zip(undone.hunks, lines, strict=True)
    ]
    assert answers == [False, False]


FOUR = "".join(f"    v{n} = {n}\n" for n in range(4))
LONGER = KEPT.replace("    b", f"{FOUR}    b")


@pytest.mark.parametrize(
    ("now", "line", "is_left"),
    [
        (KEPT.replace("    c", "    v0 = 0\n    v3 = 3\n    c"), 2, True),
        (KEPT.replace("    c", "    v3 = 3\n    c"), 2, False),
        (
            "def z():\n"
            + "    pass\n" * 9
            + KEPT.replace("    c", "    v0 = 0\n    v3 = 3\n    c"),
            12,
            True,
        ),
        (f"def z():\n{FOUR}" + "    pass\n" * 9 + KEPT, 16, False),
        (KEPT.replace("    a", "    v1 = 1\n    v2 = 2\n    a"), 4, True),
        (KEPT + "    d\n" * 6 + "    v0 = 0\n    v1 = 1\n", 2, False),
    ],
)
def test_half_of_what_was_removed_around_its_place_is_enough(
    now: str, line: int, *, is_left: bool
) -> None:
    assert left(LONGER, KEPT, now, line) is is_left


CLASS = "class A:\n    def f(self):\n        a = 1\n\n    def h(self):\n        b = 2\n"
WITH_G = CLASS.replace("    def h", "    def g(self):\n        x = 1\n\n    def h")


@pytest.mark.parametrize(
    ("now", "is_left"),
    [
        (CLASS, False),
        (f"{CLASS}\n    def g(self, y):\n        return y\n", True),
        (f"{CLASS}\n    async def g(self):\n        return 0\n", True),
        (f"{CLASS}\n\nclass B:\n    def g(self):\n        return 0\n", False),
        (f"{CLASS}\n    def gg(self):\n        return 0\n", False),
        (f"{CLASS}\n\ndef g():\n    return 0\n", True),
    ],
)
def test_a_removed_method_that_its_class_has_still_is_left(now: str, *, is_left: bool) -> None:
    assert left(WITH_G, CLASS, now, 4) is is_left
