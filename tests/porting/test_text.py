"""One file carried over: what proves the result, and what is shown of two that differ."""

from __future__ import annotations

import pytest

from vllm_mods.base.diff3 import Clash
from vllm_mods.porting import statements, text, textual
from vllm_mods.porting.structure import Ported

BASE = "def f(x):\n    a = 1\n    b = 2\n    return a\n\n\ndef g(x):\n    return x\n"
OURS = BASE.replace("a = 1", "a = 3")


def port(theirs: str, ours: str = OURS, base: str = BASE, *, python: bool = True) -> Ported:
    return text.port(*(one.encode() for one in (base, ours, theirs)), python=python)


def problems(done: Ported) -> list[tuple[str, str, str | None]]:
    return [(one.code, one.message, one.scope) for one in done.problems]


def test_where_all_ways_agree_the_file_is_the_proof() -> None:
    theirs = "import os\n\n\n" + BASE
    done = port(theirs)
    assert (done.text, done.proof) == (theirs.replace("a = 1", "a = 3").encode(), "file")
    assert (done.touched, done.problems, done.followed) == (("f",), (), ())


def test_where_the_file_clashes_and_scopes_do_not_these_are() -> None:
    base = "class A:\n    def f(self):\n        return 1\n    def g(self):\n        return 2\n"
    theirs = base.replace("g(self)", "g(self, x)")
    done = port(theirs, base.replace("return 1", "return 3"), base)
    assert (done.text, done.proof) == (theirs.replace("return 1", "return 3").encode(), "scopes")
    assert done.touched == ("A.f",)


def test_where_lines_clash_and_statements_do_not_these_are() -> None:
    done = port(BASE.replace("b = 2", "b = 4"))
    assert (done.text, done.proof) == (OURS.replace("b = 2", "b = 4").encode(), "statements")


def test_a_clash_names_its_scope_and_has_no_text() -> None:
    done = port(BASE.replace("a = 1", "a = 4"))
    assert (done.text, done.proof) == (None, None)
    assert problems(done) == [("clash", "the target changed the same lines", "f")]
    assert [one for one in done.stretches if isinstance(one, Clash)] == [
        Clash((b"    a = 3\n",), (b"    a = 1\n",), (b"    a = 4\n",))
    ]


def test_what_the_mod_would_leave_out_is_named_by_line() -> None:
    ours = BASE.replace("    b = 2\n", "    if x:\n        return 0\n    b = 2\n")
    theirs = BASE.replace("    return a\n", "    c = 1\n    self.t = 1\n    return a\n")
    done = port(theirs, ours)
    assert (done.text, done.proof) == (None, None)
    assert problems(done) == [
        (
            "skips",
            "line 4, which the mod adds, skips the target's new code, which sets or calls self.t",
            "f",
        )
    ]
    assert done.stretches == [tuple(f"{line}\n".encode() for line in (
        "def f(x):", "    a = 1", "    if x:", "        return 0", "    b = 2", "    c = 1",
        "    self.t = 1", "    return a", "", "", "def g(x):", "    return x",
    ))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "theirs", "problem"),
    [
        (False, BASE.replace("a = 1", "a = 4"), "the target changed the same lines"),
        (True, BASE.replace("a = 1", "a = 4") + "def (:\n", "the target changed the same lines"),
    ],
)
def test_what_has_no_scopes_is_merged_as_lines(
    python: bool,  # noqa: FBT001
    theirs: str,
    problem: str,
) -> None:
    assert problems(port(theirs, python=python)) == [("clash", problem, "")]
    good = port(theirs.replace("a = 4", "a = 1").replace("return x", "return y"), python=python)
    assert (good.problems, good.proof) == ((), "file")
    assert b"a = 3" in (good.text or b"")


# --- what lies beside


PIECES: list[tuple[bytes, ...] | Clash] = [
    (b"a\n", b"b\n"),
    Clash((b"x\n",), (), (b"y\n",)),
    (b"c\n",),
]


@pytest.mark.parametrize(
    ("merged", "agrees"),
    [
        (b"a\nb\nx\nc\n", True),
        (b"a\nb\nc\n", True),
        (b"0\na\nb\nx\nc\n", False),
        (b"a\nx\nc\n", False),
        (b"a\nb\nx\n", False),
        (b"a\nb\nx\nc\nd\n", False),
        (b"a\nb\n", False),
    ],
)
def test_a_text_agrees_with_lines_that_it_has_all_of(merged: bytes, agrees: bool) -> None:  # noqa: FBT001
    assert statements.agrees(merged, PIECES) is agrees


@pytest.mark.parametrize(
    ("pieces", "merged", "agrees"),
    [
        ([PIECES[1], (b"c\n",)], b"x\nc\n", True),
        ([(b"a\n",), PIECES[1]], b"a\nx\n", True),
        ([(b"a\n",), PIECES[1]], b"x\na\n", False),
        ([(b"a\n",), PIECES[1], (b"b\n",), PIECES[1]], b"a\nx\nb\ny\n", True),
        ([(b"a\n",), PIECES[1], (b"b\n",), PIECES[1]], b"a\nx\ny\n", False),
        ([(b"c\n",), PIECES[1], (b"c\n",)], b"c\n", False),
        ([(b"a\n",)], b"a\n", True),
    ],
)
def test_pieces_stand_in_their_order_and_do_not_overlap(
    pieces: list[tuple[bytes, ...] | Clash],
    merged: bytes,
    agrees: bool,  # noqa: FBT001
) -> None:
    assert statements.agrees(merged, pieces) is agrees


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


@pytest.mark.slow
def test_markers_of_the_texts_themselves_are_no_clash() -> None:
    marks = b"".join(mark * 50 + b" x\n" for mark in (b"<", b"|", b"=", b">"))
    base = marks + b"a\nb\nc\n"
    merged = textual.merge(
        *(lines(one) for one in (base, base.replace(b"a", b"1"), base.replace(b"a", b"2")))
    )
    assert merged == [tuple(lines(marks)), Clash((b"1\n",), (b"a\n",), (b"2\n",)), (b"b\n", b"c\n")]
    assert textual.merge(lines(base), lines(base), lines(base)) == [tuple(lines(base))]


def test_several_clashes_are_read_with_what_stands_between() -> None:
    base, ours, theirs = b"a\nb\nc\nd\ne\n", b"1\nb\nc\nd\n2\n", b"3\nb\nc\nd\n4\n"
    assert textual.merge(lines(base), lines(ours), lines(theirs)) == [
        Clash((b"1\n",), (b"a\n",), (b"3\n",)),
        (b"b\n", b"c\n", b"d\n"),
        Clash((b"2\n",), (b"e\n",), (b"4\n",)),
    ]
