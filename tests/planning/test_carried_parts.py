"""What a tree has of a mod already: told by hunk and patch, and by the merge from where it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import PATH, codes, found, one, tree

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import (
    FileChange,
    Finding,
    Level,
    Mod,
    ModPlan,
    OverlayFile,
    PlacedHunk,
    Variant,
    Verdict,
)
from vllm_mods.base.tree import Tree
from vllm_mods.planning import carried_parts, patching
from vllm_mods.planning.carried_parts import is_carried, merge_change
from vllm_mods.planning.planner import WORKSPACE, hunk_states, plan

if TYPE_CHECKING:
    from vllm_mods.planning.context import Origin

OTHER = "vllm/y.py"
F = "def f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
G = "\n\ndef g():\n    p = 1\n    q = 2\n    r = 3\n    return p\n"
TEXT = F + G
DONE = TEXT.replace("b = 2", "b = 9").replace("q = 2", "q = 9")
HALF = TEXT.replace("b = 2", "b = 9")
TWO = diff_of(PATH, TEXT, DONE, context=1)
FIRST, SECOND = diff_of(PATH, TEXT, HALF), diff_of(OTHER, TEXT, DONE, context=1)


def both(x: str, y: str, **more: object) -> MemoryTree:
    return MemoryTree({PATH: x.encode(), OTHER: y.encode()}, **more)  # type: ignore[arg-type]


def states(
    made: Mod, there: MemoryTree, origin: Origin | None = None
) -> list[tuple[str, int | None, str]]:
    (only,) = made.variants
    if origin is None:
        hunks = hunk_states(made, only, there)
    else:
        parts = patching.parts_of(made, only, WORKSPACE)
        hunks = carried_parts.states(parts, there, origin(made, only))
    return [(hunk.path, hunk.number, hunk.state) for hunk in hunks]


# --- half of it --------------------------------------------------------------


def test_an_edited_file_that_has_one_of_two_hunks_is_half_applied_and_both_are_named() -> None:
    planned = one(mod(variant(TWO)), tree(HALF))
    assert (planned.verdict, planned.in_range) == (Verdict.PARTIAL, True)
    finding = found(planned, "half-applied")
    assert finding.message == f"already applied: {PATH} hunk 1; not applied: {PATH} hunk 2"
    assert (finding.path, finding.level) == (PATH, Level.ERROR)
    assert states(mod(variant(TWO)), tree(HALF)) == [(PATH, 1, "carried"), (PATH, 2, "placed")]


def test_of_several_patches_a_whole_one_is_named_by_its_name() -> None:
    made = mod(variant(FIRST, SECOND))
    planned = one(made, both(HALF, HALF))
    message = found(planned, "half-applied").message
    assert message == f"already applied: one/0.patch, {OTHER} hunk 1; not applied: {OTHER} hunk 2"
    assert states(made, both(HALF, HALF)) == [
        (PATH, None, "carried"),
        (OTHER, 1, "carried"),
        (OTHER, 2, "placed"),
    ]


def test_half_of_it_beside_what_does_not_fit_says_both() -> None:
    planned = one(mod(variant(FIRST, SECOND)), both(HALF, F))
    assert planned.verdict is Verdict.PARTIAL
    assert "half-applied" in codes(planned)
    assert {finding.path for finding in planned.findings if finding.code != "half-applied"} == {
        OTHER
    }


def test_a_release_that_carries_a_part_takes_the_rest_by_a_variant_of_its_own() -> None:
    made = mod(variant(TWO))
    for there in (tree(HALF, pristine=True), tree(HALF, released={PATH: HALF.encode()})):
        planned = one(made, there)
        assert planned.verdict is Verdict.CONFLICT
        finding = found(planned, "carried")
        assert (finding.level, finding.path) == (Level.ERROR, PATH)
        assert finding.message == (
            f"the release already has {PATH} hunk 1; the rest applies, so this release needs its own variant"
        )
    edited = tree(HALF, released={PATH: TEXT.encode()})
    assert one(made, edited).verdict is Verdict.PARTIAL


def test_a_release_that_carries_a_part_and_does_not_take_the_rest_says_why() -> None:
    there = both(HALF, F.replace("b = 2", "b = 5"), pristine=True)
    planned = one(mod(variant(FIRST, SECOND)), there)
    finding = found(planned, "carried")
    assert (planned.verdict, finding.level) == (Verdict.CONFLICT, Level.NOTE)
    assert finding.message == "the release already has one/0.patch"
    assert "text" in codes(planned)
    gone = MemoryTree({PATH: HALF.encode()}, pristine=True)
    assert one(mod(variant(FIRST, SECOND)), gone).verdict is Verdict.MISSING


def test_one_file_that_is_not_as_released_makes_an_edited_tree() -> None:
    there = both(HALF, TEXT, released={PATH: HALF.encode(), OTHER: b"other"})
    assert one(mod(variant(FIRST, SECOND)), there).verdict is Verdict.PARTIAL


def test_half_of_a_mod_that_is_meant_for_other_versions_is_told_of_an_edited_tree_only() -> None:
    made = mod(variant(TWO, vllm="<0.1"))
    planned = one(made, tree(HALF))
    assert (planned.verdict, planned.in_range) == (Verdict.PARTIAL, False)
    assert one(made, tree(HALF, pristine=True)).verdict is Verdict.UNSUPPORTED
    nothing = one(made, tree("x = 1\n"))
    assert nothing.verdict is Verdict.UNSUPPORTED


def test_parts_on_top_of_each_other_are_taken_out_from_the_last_one_down() -> None:
    last = HALF.replace("b = 9", "b = 99")
    made = mod(variant(FIRST, diff_of(PATH, HALF, last), SECOND))
    there = both(last, TEXT)
    assert states(made, there) == [
        (PATH, None, "carried"),
        (PATH, None, "carried"),
        (OTHER, 1, "placed"),
        (OTHER, 2, "placed"),
    ]
    assert found(one(made, there), "half-applied").message == (
        "already applied: one/0.patch, one/1.patch; not applied: one/2.patch"
    )


# --- the state of each hunk ---------------------------------------------------


def test_a_plan_that_writes_or_would_not_work_has_all_hunks_placed() -> None:
    assert states(mod(variant(TWO)), tree(TEXT)) == [(PATH, 1, "placed"), (PATH, 2, "placed")]


def test_a_mod_that_is_in_has_all_hunks_carried() -> None:
    for pristine in (True, False):
        there = tree(DONE, pristine=pristine)
        assert states(mod(variant(TWO)), there) == [(PATH, 1, "carried"), (PATH, 2, "carried")]


def test_a_hunk_that_is_neither_is_absent_and_a_whole_file_has_no_number() -> None:
    file = OverlayFile(source="o.py", path="vllm/w.py", data=b"w\n")
    made = mod(variant(TWO, overlay=(file,)))
    there = MemoryTree({PATH: (HALF.replace("q = 2", "q = 5")).encode(), "vllm/w.py": b"other\n"})
    assert states(made, there) == [
        (PATH, 1, "carried"),
        (PATH, 2, "absent"),
        ("vllm/w.py", None, "absent"),
    ]


def test_a_file_that_is_gone_does_not_carry_what_changed_it() -> None:
    made = mod(variant(FIRST, SECOND))

    def origin(_mod: Mod, _variant: Variant) -> Tree:
        return both(TEXT, TEXT)

    there = MemoryTree({PATH: TEXT.encode()})
    assert one(made, there, origin=origin).verdict is Verdict.MISSING
    assert [state for _, _, state in states(made, there, origin)] == ["placed", "absent", "absent"]


def test_a_rename_is_carried_where_both_names_say_so() -> None:
    patch = b"diff --git a/vllm/o.py b/vllm/p.py\nrename from vllm/o.py\nrename to vllm/p.py\n"
    made = mod(variant(FIRST, patch))

    def origin(_mod: Mod, _variant: Variant) -> Tree:
        return MemoryTree({PATH: TEXT.encode(), "vllm/o.py": b"o\n"})

    for files, state in (
        ({"vllm/p.py": b"o\n"}, "carried"),
        ({"vllm/o.py": b"o\n"}, "placed"),
        ({}, "absent"),
        ({"vllm/p.py": b"o\n", "vllm/o.py": b"o\n"}, "absent"),
    ):
        there = MemoryTree({PATH: TEXT.replace("b = 2", "b = 5").encode(), **files})
        assert states(made, there, origin=origin)[1] == ("vllm/o.py", None, state), files


def test_a_change_is_merged_where_it_is_one_of_the_same_file() -> None:
    new, gone = FileChange("p", None, b"x\n"), FileChange("p", b"x\n", None)
    edit = FileChange("p", b"a\nb\nc\n", b"a\nb\nC\n")
    assert [merge_change(new, there) for there in (None, b"x\n", b"y\n")] == [b"x\n", b"x\n", None]
    assert [merge_change(gone, there) for there in (b"x\n", b"y\n")] == [None, None]
    assert merge_change(edit, b"0\na\nb\nc\n") == b"0\na\nb\nC\n"
    assert merge_change(edit, None) is None
    assert merge_change(edit, b"a\nb\nd\n") is None
    assert is_carried(gone, None)
    assert not is_carried(edit, None)
    assert not is_carried(gone, b"y\n")


# --- the merge from where a mod was written for -------------------------------

OLD = "def f():\n" + "".join(f"    v{i} = {i}\n" for i in range(12)) + "    return v6\n"
FIXED = OLD.replace("v6 = 6", "v6 = 7")
LATER = FIXED.replace("v4 = 4", "v4 = 5")
"""The fix among other lines: neither a hunk of it nor its reverse has a place here."""


def came_from(text: str, **more: object) -> Origin:
    def origin(_mod: Mod, _variant: Variant) -> Tree:
        return tree(text, **more)

    return origin


def test_a_fix_among_other_lines_is_in_as_the_merge_tells() -> None:
    made = mod(variant(diff_of(PATH, OLD, FIXED)))
    assert one(made, tree(LATER)).verdict is Verdict.CONFLICT
    for pristine, verdict in ((True, Verdict.UPSTREAM), (False, Verdict.APPLIED)):
        planned = one(made, tree(LATER, pristine=pristine), origin=came_from(OLD))
        assert planned.verdict is verdict
        assert planned.variant is not None
    without = tree(LATER.replace("v6 = 7", "v6 = 8"))
    assert one(made, without, origin=came_from(OLD)).verdict is Verdict.CONFLICT


def test_all_parts_have_to_be_in_as_the_merge_tells() -> None:
    made = mod(variant(diff_of(PATH, OLD, FIXED), diff_of(OTHER, OLD, FIXED)))

    def origin(_mod: Mod, _variant: Variant) -> Tree:
        return both(OLD, OLD)

    assert one(made, both(LATER, LATER), origin=origin).verdict is Verdict.APPLIED
    half = one(made, both(LATER, OLD), origin=origin)
    assert half.verdict is Verdict.PARTIAL
    assert states(made, both(LATER, OLD), origin=origin) == [
        (PATH, None, "carried"),
        (OTHER, None, "placed"),
    ]


def test_an_origin_that_does_not_take_the_mod_or_cannot_be_read_decides_nothing() -> None:
    made = mod(variant(diff_of(PATH, OLD, FIXED)))

    class Torn(MemoryTree):
        def read(self, path: str) -> bytes | None:
            raise TreeError(f"{path}: gone")

    for origin in (
        came_from("x = 1\n"),
        came_from(FIXED),
        lambda _mod, _variant: Torn({}),
        lambda _mod, _variant: None,
    ):
        assert one(made, tree(LATER), origin=origin).verdict is Verdict.CONFLICT


METHOD = "    def f(self):\n        x = 1\n        y = 2\n        z = 3\n"
LONG = "class C:\n" + "".join(f"    c{i} = {i}\n" for i in range(20)) + "\n\n"
IN_B = f"class B:\n{METHOD}\n\n{LONG}"
IN_A = f"{LONG}class A:\n{METHOD}"
FOR_B = diff_of(PATH, IN_B, IN_B.replace("y = 2", "y = 3"), context=1)


def test_a_text_that_stood_in_another_class_where_the_mod_comes_from_is_no_place() -> None:
    planned = one(mod(variant(FOR_B)), tree(IN_A), origin=came_from(IN_B, version="0.18.0"))
    assert planned.verdict is Verdict.MISPLACED
    assert not planned.changes
    finding = found(planned, "elsewhere")
    assert (finding.path, finding.line, finding.hunk, finding.scope) == (PATH, 26, 1, "B.f")
    assert "its text is at line 26 (`A.f`), but the hunk was written in `B.f`" in finding.message


def test_a_variant_that_the_merge_contradicts_does_not_stand_in_the_way_of_another() -> None:
    there = IN_A.replace("c1 = 1", "c1 = 0")
    other = variant(diff_of(PATH, there, there.replace("c7 = 7", "c7 = 0")), name="other")
    made = mod(variant(FOR_B), other)

    def origin(_mod: Mod, asked: Variant) -> Tree | None:
        return tree(IN_B) if asked.id == "one" else None

    planned = one(made, tree(there), origin=origin)
    assert (planned.verdict, planned.variant) == (Verdict.APPLIES, other)


def test_a_place_that_the_merge_agrees_with_is_one() -> None:
    made = mod(variant(diff_of(PATH, OLD, FIXED)))
    there = tree(f"import os\n\n\n{OLD}")
    planned = one(made, there, origin=came_from(OLD))
    assert planned.verdict is Verdict.MOVED
    named = mod(variant(diff_of(PATH, OLD, FIXED, section="def f():")))
    assert planned.changes == one(named, there).changes


def test_the_origin_is_asked_of_the_variants_that_are_meant_for_the_tree_alone() -> None:
    asked: list[str] = []

    def origin(_mod: Mod, variant_: Variant) -> None:
        asked.append(variant_.id)

    made = mod(
        variant(diff_of(PATH, OLD, FIXED), name="far", vllm="<0.1"),
        variant(diff_of(PATH, OLD, FIXED), name="meant", vllm=">=0.19"),
    )
    assert plan([made], tree(OLD), origin=origin).ok
    assert set(asked) == {"meant"}


@pytest.mark.parametrize("kind", ["new", "gone", "whole"])
def test_new_and_removed_files_are_carried_where_they_are_as_they_would_be(kind: str) -> None:
    file = OverlayFile(source="o.py", path="vllm/w.py", data=b"w\n")
    made, carried, not_yet = {
        "new": (
            variant(FIRST, b"--- /dev/null\n+++ b/vllm/w.py\n@@ -0,0 +1 @@\n+w\n"),
            {"vllm/w.py": b"w\n"},
            dict[str, bytes](),
        ),
        "gone": (
            variant(FIRST, b"--- a/vllm/w.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-w\n"),
            dict[str, bytes](),
            {"vllm/w.py": b"w\n"},
        ),
        "whole": (variant(FIRST, overlay=(file,)), {"vllm/w.py": b"w\n"}, dict[str, bytes]()),
    }[kind]
    text = {PATH: TEXT.encode()}
    origin = lambda _mod, _variant: MemoryTree(text | not_yet)  # noqa: E731
    found_ = states(mod(made), MemoryTree(text | carried), origin=origin)
    assert found_ == [(PATH, None, "placed"), ("vllm/w.py", None, "carried")]
    found_ = states(mod(made), MemoryTree({PATH: HALF.encode()} | not_yet), origin=origin)
    assert found_ == [(PATH, None, "carried"), ("vllm/w.py", None, "placed")]


def test_in_the_origin_a_hunk_of_few_lines_stands_at_its_line() -> None:
    """Anywhere else a twin of so few lines may have come there."""
    path, text = "vllm/t.jinja", "x\n{\nb\n}\ny\n"
    made = variant(diff_of(path, text, text.replace("b", "c"), context=1), vllm=">=0.18")
    there = MemoryTree({path: text.encode()})
    assert not one(mod(made), there).verdict.ok
    parts = patching.parts_of(mod(made), made, WORKSPACE)
    ((change,),) = carried_parts.changes_of(parts, there) or ()
    assert change == FileChange(path, text.encode(), text.replace("b", "c").encode())


# --- what the origin has against a placement ----------------------------------------------------------

BEFORE = b"a\nb\nc\n"


def plan_with(after: bytes | None, *scopes: str, now: bytes = BEFORE, path: str = PATH) -> ModPlan:
    made = mod(variant(FOR_B))
    hunks = [PlacedHunk("p", path, n, 7, 0, scope, "scope") for n, scope in enumerate(scopes, 1)]
    plan = ModPlan(made, made.variants[0], Verdict.APPLIES, in_range=True, hunks=tuple(hunks))
    return plan._replace(changes=(FileChange(path, now, after),))


MORE = b"new\n" + BEFORE
CLASH = b"a\nother\nc\n"


def test_where_the_merge_is_clean_its_bytes_count() -> None:
    at_origin = plan_with(b"a\nB\nc\n", "f")
    same, other_bytes = (
        carried_parts.disagreement(plan_with(after, "g", now=MORE), at_origin, "0.18.0")
        for after in (b"new\na\nB\nc\n", b"new\na\nb\nB\n")
    )
    assert same is None
    assert other_bytes == Finding(
        FindingCode.MERGE,
        f"{PATH}: the hunks apply, but a three-way merge from vLLM 0.18.0 gives a different result",
        PATH,
    )
    other = plan_with(b"x", "g", now=MORE, path="vllm/other.py")
    assert carried_parts.disagreement(other, at_origin, "0.18.0") is None


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (("f", "g"), ("f", "g"), None),
        (
            ("f", "g"),
            ("f", "h"),
            "(`g`); in vLLM 0.18.0, which the patch was made for, its text is in `h`",
        ),
        (
            ("f", ""),
            ("f", "h"),
            "(`module level`); in vLLM 0.18.0, which the patch was made for, its text is in `h`",
        ),
        (
            ("f", "g"),
            ("f", ""),
            "(`g`); in vLLM 0.18.0, which the patch was made for, its text is in `module level`",
        ),
        (("f", "g"), ("f",), None),
    ],
)
def test_where_the_merge_clashes_each_hunk_is_in_the_scope_that_it_has_there(
    here: tuple[str, ...], there: tuple[str, ...], words: str | None
) -> None:
    at_origin = plan_with(b"a\nB\nc\n", *there)
    finding = carried_parts.disagreement(plan_with(b"x", *here, now=CLASH), at_origin, "0.18.0")
    if words is None:
        assert finding is None
    else:
        message = f"{PATH}, hunk 2 of p: in this tree, its text is at line 7 {words}"
        place = {"path": PATH, "line": 7, "hunk": 2, "scope": there[1]}
        assert finding == Finding(FindingCode.ELSEWHERE, message, **place)  # type: ignore[arg-type]
