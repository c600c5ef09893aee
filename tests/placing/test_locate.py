"""What locating says of a file and of the place most like a hunk's, each alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from mod_making import diff_of

from vllm_mods.base import limits
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.formats.diff import parse
from vllm_mods.placing import candidates, doubts, headers, layers, locate, nearest
from vllm_mods.placing.answers import Located, Lost
from vllm_mods.placing.nearest import Near
from vllm_mods.placing.resemblance import look_alikes
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.placing.target import Target, matches, splice

if TYPE_CHECKING:
    from vllm_mods.formats.diff import Hunk


def hunk(before: str, after: str, *, context: int = 3) -> Hunk:
    (file,) = parse(diff_of("vllm/x.py", before, after, context=context), "x.patch")
    (one,) = file.hunks
    return one


def target(text: str) -> Target:
    return Target(text.encode(), read_scopes)


def test_git_s_name_of_a_content_may_be_abbreviated_but_not_to_nothing() -> None:
    there = Target(b"x = 1\n", None)
    name = hashlib.sha1(b"blob 6\0x = 1\n", usedforsecurity=False).hexdigest()
    longer = hashlib.sha256(b"blob 6\0x = 1\n").hexdigest()
    for one in (name, name[:12], name[:7], longer):
        assert there.is_blob(one)
    for other in (None, "", name[:3], "0" * 40, longer[:40]):
        assert not there.is_blob(other)


def test_a_definition_that_a_hunk_shows_behind_its_change_tells_nothing_of_it() -> None:
    text = "x = 1\n\n\ndef f():\n    return 1\n"
    assert not headers.defines(hunk(text, text.removeprefix("x = 1\n")), target(text), 1)
    assert headers.defines(hunk(text, text.replace("return 1", "return 2")), target(text), 2)


def test_above_the_first_definition_no_header_of_one_holds() -> None:
    text = "x = 1\ny = 2\nz = 3\n\n\ndef last():\n    return 1\n"
    there = target(text)
    plain = hunk(text, text.replace("y = 2", "y = 3"), context=1)
    for section in ("def last():", "class last:"):
        assert not headers.header_holds(plain._replace(section=section), there, 1)
    assert headers.header_holds(plain._replace(section="x = 0"), there, 1)


def test_the_scope_of_a_hunk_that_keeps_no_line_is_that_of_what_it_removes() -> None:
    kept, gone = "def f():\n    return 1\n", "def g():\n    x = 2\n    return x\n"
    wanted = hunk(kept + gone, kept, context=0)
    assert locate.scope_of(wanted, target(kept + gone), 3) == "g"


@pytest.mark.parametrize(
    ("removed", "slides"),
    [("-y\n-x\n", True), ("-z\n-y\n", True), ("-y\n", False), ("-x\n-y\n", False)],
)
def test_what_was_removed_slides_where_it_ends_or_begins_as_its_surroundings(
    removed: str, *, slides: bool
) -> None:
    count = removed.count("-") + 2
    patch = f"--- a/x.py\n+++ b/x.py\n@@ -1,{count} +1,2 @@\n x\n{removed} z\n"
    (file,) = parse(patch.encode(), "x.patch")
    assert doubts.slides(file.hunks[0].reversed()) == slides


def test_in_a_file_without_scopes_no_definition_is_still_there() -> None:
    gone = hunk("a\ndef f():\n    pass\nb\n", "a\nb\n").reversed()
    text = "a\ndef f():\n    pass\nb\n"
    assert not doubts.still_there(gone, Target(text.encode(), None), 1)
    assert doubts.still_there(gone, Target(b"a\nb\n\ndef f():\n    pass\n", read_scopes), 1)


def test_nearest_is_where_most_lines_in_a_row_are_the_same() -> None:
    wanted = hunk("a = 1\nb = 2\nc = 3\nd = 4\n", "a = 1\nb = 2\nc = 3\nd = 5\n")
    near = nearest.nearest(wanted, target("a = 1\nb = 2\nc = 3\nx = 0\nd = 4\n"), None)
    assert near == Near(4, "line 4 is `x = 0`, but the patch has `d = 4`", 1)


def test_nearest_is_where_most_lines_are_though_others_are_in_a_row_elsewhere() -> None:
    wanted = hunk("a = 1\nb = 2\nc = 3\nd = 4\n)\n\n", "a = 1\nb = 2\nc = 9\nd = 4\n)\n\n")
    alike = "a = 1\nb = 2\nc = 7\nd = 4\n)\n"
    near = nearest.nearest(wanted, target(f"d = 4\n)\n\n{alike}x\n{alike}"), None)
    assert near == Near(6, "line 6 is `c = 7`, but the patch has `c = 3`", 4)
    far = wanted._replace(old_start=10)
    near = nearest.nearest(far, target(f"d = 4\n)\n\n{alike}x\n{alike}"), None)
    assert near is not None
    assert near.line == 12


def test_nearest_takes_only_line_ends_for_line_ends() -> None:
    near = nearest.nearest(hunk("a = 1\nb = MAX\n", "a = 1\n"), target("a = 1\nb = MA\n"), None)
    assert near == Near(2, "line 2 is `b = MA`, but the patch has `b = MAX`", 1)


def test_nearest_is_the_first_line_that_differs() -> None:
    wanted = hunk("a = 1\nb = 2\nc = 3\n", "a = 1\nb = 9\nc = 3\n")
    said = "line 2 is `b = 7`, but the patch has `b = 2`"
    assert nearest.nearest(wanted, target("a = 1\nb = 7\nc = 3\n"), None) == Near(2, said, 1)
    moved = "z = 0\n\n\na = 1\nb = 7\nc = 3\n"
    assert nearest.nearest(wanted, target(moved), None) == Near(5, said.replace("2 i", "5 i"), 4)


def test_nearest_may_begin_before_the_file_and_end_after_it() -> None:
    wanted = hunk("a = 1\nb = 2\nc = 3\n", "a = 1\nb = 9\nc = 3\n")
    near = nearest.nearest(wanted, target("b = 2\nc = 3\n"), None)
    assert near == Near(1, "line 1 is the end of the file, but the patch has `a = 1`", 1)
    near = nearest.nearest(wanted, target("a = 1\nb = 2\n"), None)
    assert near == Near(3, "line 3 is the end of the file, but the patch has `c = 3`", 1)


def test_nearest_tells_line_ends() -> None:
    wanted = hunk("a = 1\nb = 2\n", "a = 1\nb = 9\n")
    near = nearest.nearest(wanted, target("x = 0\na = 1\r\nb = 2\r\n"), None)
    assert near == Near(2, "line 2 differs only in its line ending", 2)


def test_nearest_looks_in_the_scope_first() -> None:
    body = "    x = 1\n    y = {}\n    return x\n"
    text = f"def f():\n{body.format(3)}\n\ndef g():\n{body.format(4)}"
    wanted = hunk(body.format(2), body.format(9))
    assert nearest.nearest(wanted, target(text), "g") == Near(
        9, "line 9 is `y = 4`, but the patch has `y = 2`", 8
    )
    near = nearest.nearest(wanted, target(text), "gone")
    assert near is not None
    assert near.line == 3


def test_nearest_looks_in_the_method_that_a_header_names_without_its_class() -> None:
    # a longer stretch is alike elsewhere
    text = "def f():\n    x = 1\n    y = 2\n    return 0\n\n\nclass A:\n    def g(self):\n        y = 3\n        return x\n"
    wanted = hunk("    x = 1\n    y = 2\n        return x\n", "    x = 1\n")
    near = nearest.nearest(wanted, target(text), "g")
    assert near is not None
    assert near.line >= 8
    twice = f"{text}\n\nclass B:\n    def g(self):\n        return 1\n"
    near = nearest.nearest(wanted, target(twice), "g")
    assert near is not None
    assert near.line == 4


def test_without_a_line_in_common_the_most_alike_is_told() -> None:
    wanted = hunk("something_long = compute(1)\nmore\n", "x = 2\nmore\n")
    near = nearest.nearest(wanted, target("other = 0\nsomething_long = compute(17)\n"), None)
    said = (
        "none of its lines is in the file; most similar: line 2 is `something_long = compute(17)`, "
        "but the patch has `something_long = compute(1)`"
    )
    assert near == Near(2, said, 2)
    assert nearest.nearest(wanted, target("z\n"), None) is None


@pytest.mark.parametrize(("there", "few"), [("a\nb\nx\n", False), ("a\nx\ny\nz\n", True)])
def test_a_place_with_less_than_a_quarter_of_the_lines_is_said_to_have_few(
    there: str, *, few: bool
) -> None:
    near = nearest.nearest(
        hunk("a\nb\nc\nd\ne\n", "a\nb\nc\nd\nf\n", context=4), target(there), None
    )
    assert near is not None
    assert near.words.startswith("only 1 of its 5 lines are in the file; line 2 is `x`") is few


@pytest.mark.parametrize(
    ("line", "is_like"), [("abcxy", True), ("abc", True), ("abcdefg", True), ("abxyz", False)]
)
def test_a_line_is_like_another_from_six_tenths_on(line: str, *, is_like: bool) -> None:
    for wanted, there in ((line, "abcde"), ("abcde", line)):
        near = nearest.nearest(hunk(f"{wanted}\n", "1\n"), target(f"{there}\n"), None)
        assert (near is not None) is is_like
    assert nearest.nearest(hunk("abc\n", "1\n"), target("abcdefg\n"), None) is not None


def test_in_very_many_lines_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = hunk("something_long = compute(1)\n", "x = 2\n")
    text = "one\ntwo\nsomething_long = compute(17)\n\n\n"
    for most, is_found in ((3, True), (2, False)):
        monkeypatch.setattr(nearest, "_MOST_COMPARED", most)
        assert (nearest.nearest(wanted, target(text), None) is not None) is is_found
    lower(monkeypatch, "EQUAL_PAIRS", 3)
    for count, is_found in ((3, True), (4, False)):
        near = nearest.nearest(hunk("a\nb\n", "a\nc\n"), Target(b"a\n" * count, None), None)
        assert (near is not None) is is_found


def test_a_line_that_stands_everywhere_tells_no_place() -> None:
    code = [f"{word}({word})\n".encode() for word in ("alpha", "beta", "gamma", "delta")]
    alike = b"".join(code[:3]) + b"other\n"
    for count in (0, 60):
        there = Target(alike + b"x\n" * 9 + code[0] * count, None)
        assert look_alikes(code, there, range(900, 901))[0].line == 1
    everywhere = Target((b"alpha(alpha)\n" + b"\n" * 20) * 49, None)
    once = [b"alpha(alpha)\n"]
    assert look_alikes(once, everywhere, range(900, 901)) == []
    fewer = Target((b"alpha(alpha)\n" + b"\n" * 20) * 3, None)
    places = [(match.score, match.line) for match in look_alikes(once, fewer, range(22, 23))]
    assert places == [(1.0, 1), (1.0, 43)]
    assert look_alikes([b"}\n", b"\n"], fewer, range(0)) == []


@pytest.mark.parametrize("length", [1, nearest._WIDEST, nearest._WIDEST + 1])
def test_long_lines_are_cut(length: int) -> None:
    text = "x" * length
    wanted = hunk(f"a = 1\n{text}\nb = 2\n", "a = 1\nb = 2\n")
    near = nearest.nearest(wanted, target("a = 1\nother\nb = 2\n"), None)
    assert near is not None
    shown = text if length <= nearest._WIDEST else text[: nearest._WIDEST - 1] + "…"
    assert near.words == f"line 2 is `other`, but the patch has `{shown}`"
    assert len(shown) <= nearest._WIDEST


def test_lines_are_found_at_each_place_where_they_stand_overlaps_included() -> None:
    assert matches(b"\n\n\n\n", [b"\n", b"\n"]) == (1, 2, 3)
    assert matches(b"a\na\na\n", [b"a\n", b"a\n"]) == (1, 2)
    assert matches(b"ba\na\nab", [b"a\n"]) == (2,)
    assert matches(b"a\na", [b"a"]) == (2,)


def test_hunks_go_in_by_their_lines_in_whatever_order_they_are_given() -> None:
    one, two = hunk("a\n", "A\n"), hunk("b\n", "B\n")
    lines = [b"b\n", b"x\n", b"a\n"]
    for placed in ([(3, one), (1, two)], [(1, two), (3, one)]):
        assert splice(lines, placed) == b"B\nx\nA\n"
    assert splice(lines, [(1, one), (1, two)]) is None


def test_blank_lines_alone_are_like_nothing() -> None:
    wanted = hunk("alpha\n\n\nbeta\n", "alpha\n\n\ngamma\n")
    assert nearest.nearest(wanted, Target(b"1\n\n\n2\n", None), None) is None


def test_a_header_is_looked_for_above_a_line_and_not_below_it() -> None:
    text = "def f():\n    a = 1\n    b = 2\n\n\ndef g():\n    c = 3\n"
    for line in (2, 3):
        assert headers.is_below("def f():", target(text), line)
        assert not headers.is_below("def g():", target(text), line)


def test_a_header_of_git_is_the_nearest_definition_or_line_in_column_0() -> None:
    text = "import os\n\n\nclass A:\n    x = 1\n\n    async def f(self):\n        a = 1\n\n    def g(self):\n        b = 2\n"
    there = target(text)
    for line, above in {
        1: (),
        2: ("import os",),
        6: ("class A:",),
        9: ("class A:", "async def f(self):"),
        11: ("class A:", "def g(self):", "def g("),
    }.items():
        sections = ("import os", "class A:", "async def f(self):", "def g(self):", "def g(")
        assert tuple(one for one in sections if headers.is_below(one, there, line)) == above
        assert headers.is_below("", there, line)


def test_the_scope_of_a_hunk_is_that_of_the_lines_that_it_keeps() -> None:
    text = "class A:\n    x = 1\n\n    def f(self):\n        return 1\n\n    y = 2\n"
    without = text.replace("    def f(self):\n        return 1\n\n", "")
    gone = hunk(text, without, context=2)
    assert locate.scope_of(gone, target(text), 2) == "A"
    assert locate.scope_of(gone.reversed(), target(without), 2) == "A"
    inner = hunk(text, text.replace("return 1", "return 2"), context=3)
    assert locate.scope_of(inner, target(text), 2) == "A | A.f"
    assert locate.scope_of(inner, Target(text.encode(), None), 2) == ""


def test_a_twin_in_the_very_scope_that_a_lock_names_is_one() -> None:
    part = "    a = one({0})\n    b = two({0})\n    c = three({0})\n    d = four({0})\n"
    between = "".join(f"    v{n} = {n}\n" for n in range(20))
    text = f"def f(x):\n{part.format('x')}{between}{part.format('x')}"
    wanted = hunk(text, text[::-1].replace("(owt", "(9owt", 1)[::-1], context=1)
    (file,) = parse(diff_of("vllm/x.py", "a\n", "b\n"), "x.patch")
    file = file._replace(hunks=(wanted,))
    changed = text[::-1].replace("(eerht", "(0eerht", 1)[::-1]
    (answer,) = locate.place(file, target(changed), written={1: ("f",)})
    assert isinstance(answer, Lost)
    assert answer.code == "look-alike"
    assert answer.lines == (2, 26)
    other = changed.replace(between, f"{between}\n\ndef g(x):\n")
    assert locate.place(file, target(other), written={1: ("f",)}) == (Located(2, "f", "scope"),)


def test_what_has_no_place_says_whether_its_text_is_nowhere_or_in_too_many_places() -> None:
    (file,) = parse(diff_of("vllm/x.py", "a = 1\n", "a = 2\n"), "x.patch")
    (nowhere,) = locate.place(file, Target(b"b = 1\n", None))
    (everywhere,) = locate.place(file, Target(b"a = 1\n" * (limits.PLACES + 1), None))
    assert isinstance(nowhere, Lost)
    assert isinstance(everywhere, Lost)
    assert (nowhere.code, nowhere.message) == ("absent", "its text is not in the file")
    assert everywhere.code == "ambiguous"
    assert f"more than {limits.PLACES}" in everywhere.message


# --- the file ---------------------------------------------------------------------------------------


def test_a_file_is_asked_by_its_lines() -> None:
    text = 'import os\n\nA = """\nx\n\ny"""\n\n\nb\nclass C:\n\n    # c\n    def f(self):\n        return 1\n    # d\n'
    there = target(text)
    assert there.lines == tuple(text.encode().splitlines(keepends=True))
    assert there.stripped[13] == b"return 1"
    assert there.places[b""] == [2, 5, 7, 8, 11]
    assert there.tops == [1, 3, 4, 6, 9, 10]
    assert {line: scope.name for line, scope in there.heads.items()} == {10: "C", 13: "C.f"}
    assert [there.home(line) for line in (1, 3, 9, 10, 14)] == ["", "", "", "C", "C.f"]
    names = [[block.name for block in there.around(line)] for line in (3, 9, 13, 14)]
    assert names == [["A ="], [], ["C", "f"], ["C", "f"]]
    spans = [(4, 4), (4, 5), (3, 4), (5, 6), (9, 9)]
    assert [there.in_string(*span) for span in spans] == [True, True, False, False, False]
    opened = {(15, 8): ["C", "f"], (15, 4): ["C"], (15, 0): [], (12, 8): ["C"], (0, 8): []}
    assert {at: [one.name for one in there.open_blocks(*at)] for at in opened} == opened


def test_a_file_without_scopes_has_lines_alone() -> None:
    there = Target(b"def f():\n    x = '''\na\nb\nc'''\n", None)
    assert (there.scopes, there.heads, there.home(2), there.around(2)) == (None, {}, "", ())
    assert not there.in_string(3, 4)
    assert there.tops == [1, 3, 4, 5]


# --- the edges of a file, and the order of hunks ----------------------------------------------------


def stated(at: int, *lines: str) -> Hunk:
    """Return a hunk of these lines that was written for line ``at``."""
    old, new = (sum(line[0] != kind for line in lines) for kind in "+-")
    text = f"--- a/x.py\n+++ b/x.py\n@@ -{at},{old} +{at},{new} @@"
    (file,) = parse("\n".join([text, *lines, ""]).encode(), "x.patch")
    return file.hunks[0]


@pytest.mark.parametrize(
    ("at", "lines", "start", "end"),
    [
        (1, ("-a", "+b", " c"), True, False),
        (1, ("+b", " c"), True, False),
        (2, ("-a", "+b", " c"), False, False),
        (1, (" c", "-a", "+b"), False, True),
        (1, (" c", "-a"), False, True),
        (9, (" c", "-a", " d"), False, False),
        (9, (" c", "-a", " d", "\\ No newline at end of file"), False, True),
    ],
)
def test_what_nothing_precedes_or_follows_belongs_at_an_edge(
    at: int, lines: tuple[str, ...], *, start: bool, end: bool
) -> None:
    made = stated(at, *lines) if lines[-1][0] != "\\" else hunk("c\na\nd", "c\nd")
    assert candidates.belongs_at_start(made) is start
    assert candidates.belongs_at_end(made) is end
    length = len(made.old)
    file = "".join(f"{n}\n" for n in range(length + 2))
    fits = [candidates.at_edges(made, target(file), line) for line in (1, 2, 3)]
    assert fits == [not end, not start and not end, not start]


@pytest.mark.parametrize(
    ("lines", "scant"),
    [
        ((" a", " b", "-c", "+d", " }"), False),
        ((" a", " }", "-c", "+d", " }"), True),
        ((" a", " b", "+d", " }"), True),
        ((" a", "-b", "-c", " d"), True),
        ((" a", "-b", "-c"), False),
    ],
)
def test_few_lines_of_code_on_either_side_are_scant(lines: tuple[str, ...], *, scant: bool) -> None:
    assert candidates.is_scant(stated(5, *lines)) is scant


def test_of_several_places_those_remain_that_leave_the_others_theirs() -> None:
    hunks = [stated(1, " a", "-b", " c"), stated(9, " d", "-e", " f"), stated(12, " g", "-h", " i")]
    lost: dict[int, Lost] = {}
    options: list[tuple[int, ...]] = [(1, 5, 20), (2, 4, 9, 30), (6, 12, 14)]
    assert candidates.in_order(options, hunks, lost) == [(1, 5), (4, 9), (12, 14)]
    assert lost == {}
    known = Lost(FindingCode.ABSENT, "known", None)
    lost = {1: known}
    assert candidates.in_order([(5,), (), (7, 8)], hunks, lost) == [(5,), (), (8,)]
    assert lost == {1: known}
    left = candidates.in_order([(5,), (6, 3, 2, 1, 4, 7), (20,)], hunks, lost := {})
    assert left == [(5,), (), (20,)]
    said = (
        "its text is only at line 6, line 3, line 2, line 1, line 4, in another order than "
        "the hunks in the patch"
    )
    assert lost == {1: Lost(FindingCode.ORDER, said, None, (6, 3, 2, 1, 4, 7))}


# --- through what other mods changed ----------------------------------------------------------------


BENEATH = "def f():\n    a = 1\n    b = 2\n    c = 3\n"
FILE = parse(diff_of("vllm/x.py", BENEATH, BENEATH.replace("b = 2", "b = 9"), context=1), "p")[0]
ABOVE = f"# new\n{BENEATH}"
HERE = Located(3, "f", "unique")


def through(here: Located | Lost, below: Located | Lost, now: str = ABOVE) -> Located | Lost:
    (answer,) = layers.place_through(
        FILE, (here,), (below,), BENEATH.encode(), target(now), others="a or b"
    )
    return answer


def test_a_place_is_carried_along_what_other_mods_changed() -> None:
    below = Located(2, "f", "stated")
    absent = Lost(FindingCode.ABSENT, "x", None)
    assert through(HERE, below) == Located(3, "f", "stated")
    assert through(absent, below) == Located(3, "f", "stated")
    for proof in ("file", "scope"):
        assert through(absent, below._replace(proof=proof)) == Located(3, "f", proof)
    for proof in ("order", "unique"):
        assert through(absent, below._replace(proof=proof)) == absent
    assert through(HERE, absent) == HERE
    for old, new in (("a = 1", "a = 5"), ("b = 2", "b = 5"), ("c = 3", "x\n    c = 3")):
        assert through(HERE, below, ABOVE.replace(old, new)) == HERE


def test_lines_that_another_mod_has_changed_are_said_to_be() -> None:
    absent = Lost(FindingCode.ABSENT, "x", None)
    changed = ABOVE.replace("b = 2", "b = 5")
    said = "a or b, which is applied first, changes the same lines (without a or b, this hunk belongs at line 2)"
    lost = through(absent, Located(2, "f | a", "stated"), changed)
    assert lost == Lost(FindingCode.CONFLICTING_MOD, said, "f", (2,))
    assert through(absent, absent, changed) == absent


def test_two_places_that_are_not_the_same_are_none() -> None:
    lost = through(Located(7, "g", "unique"), Located(2, "f", "unique"))
    said = "its text is at line 7, but after the changes of other mods it belongs at line 3"
    assert lost == Lost(FindingCode.ELSEWHERE, said, "f")
