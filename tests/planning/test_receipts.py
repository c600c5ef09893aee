"""What a receipt says is in: believed as long as the bytes are those that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, indexed, mod, variant
from small_plans import PATH, found, one

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import Level, Verdict
from vllm_mods.formats.receipt import FileHash, Receipt, ReceiptFile, ReceiptMod, original
from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod, ModPlan

OTHER = "vllm/y.py"
BEFORE = {PATH: b"a = 1\n", OTHER: b"b = 1\n"}
AFTER = {PATH: b"a = 2\n", OTHER: b"b = 2\n"}
FOR_OLD = variant(diff_of(PATH, "a = 0\n", "a = 5\n"), name="old", vllm="<0.19")
MINE = variant(
    *(diff_of(path, BEFORE[path].decode(), AFTER[path].decode()) for path in BEFORE), name="new"
)
MOD = mod(FOR_OLD, MINE)


def receipt(made: Mod = MOD, **now: bytes) -> Receipt:
    """Return what ``apply`` leaves of the mod; ``now`` are files that a later mod changed again."""
    files = tuple(FileHash(path, sha256(BEFORE[path]), sha256(AFTER[path])) for path in BEFORE)
    row = ReceiptMod(made.name, "0.9", made.digest, "new", "applies", files)
    ends = {path: now.get(path.split("/")[1].removesuffix(".py"), AFTER[path]) for path in BEFORE}
    whole = tuple(ReceiptFile(path, sha256(BEFORE[path]), sha256(ends[path])) for path in BEFORE)
    return Receipt("0.19.1", (row,), whole)


def planned(files: dict[str, bytes], told: Receipt, made: Mod = MOD) -> ModPlan:
    return one(made, MemoryTree(files, released=files), receipt=told)


def test_a_mod_that_the_receipt_names_is_in_and_nothing_more_is_said() -> None:
    answer = planned(AFTER, receipt())
    assert (answer.verdict, answer.findings, answer.changes) == (Verdict.APPLIED, (), ())
    assert answer.variant is MINE
    assert answer.in_range


def test_another_state_of_the_mod_is_to_be_reverted_first() -> None:
    newer = MOD._replace(digest="f" * 64, version="1.1")
    answer = planned(AFTER, receipt(), newer)
    assert answer.verdict is Verdict.CONFLICT
    message = found(answer, "other-version").message
    digests = f"(digest {MOD.digest[:12]}, not ffffffffffff); revert the applied mod first"
    assert message == f"mod 0.9 is applied, not 1.1 {digests}"
    same = planned(AFTER, receipt(), newer._replace(version="0.9"))
    assert found(same, "other-version").message == f"another build of mod 0.9 is applied {digests}"


def test_a_file_that_was_edited_since_is_named() -> None:
    answer = planned(AFTER | {OTHER: b"b = 3\n"}, receipt())
    assert answer.verdict is Verdict.PARTIAL
    finding = found(answer, "changed-since")
    assert finding.path == OTHER
    assert f"these files were changed after the mod was applied: {OTHER}" in finding.message
    both = planned({PATH: b"", OTHER: b""}, receipt())
    assert (
        f"these files were changed after the mod was applied: {PATH}, {OTHER}"
        in found(both, "changed-since").message
    )
    assert found(both, "changed-since").path == PATH


def test_what_a_later_mod_made_of_a_file_is_no_edit() -> None:
    now = {PATH: AFTER[PATH], OTHER: b"b = 7\n"}
    assert planned(now, receipt(y=b"b = 7\n")).verdict is Verdict.APPLIED
    # what the mod itself left is one by then: the later mod's change is gone
    assert planned(AFTER, receipt(y=b"b = 7\n")).verdict is Verdict.PARTIAL


def test_a_file_that_the_whole_receipt_does_not_name_has_to_be_as_its_mod_left_it() -> None:
    told = receipt()._replace(files=())
    assert planned(AFTER, told).verdict is Verdict.APPLIED
    assert planned(BEFORE, told).verdict is Verdict.PARTIAL


def test_a_variant_that_the_mod_has_no_more_is_still_in() -> None:
    answer = planned(AFTER, receipt(), MOD._replace(variants=(FOR_OLD,)))
    assert (answer.verdict, answer.variant, answer.in_range) == (Verdict.APPLIED, None, False)


def test_a_release_has_a_change_itself_only_in_files_that_no_mod_touched() -> None:
    mine = receipt()._replace(mods=())
    # RECORD agrees with what is there, and so it does after an apply
    theirs = mine._replace(files=())
    upstream = planned(AFTER, theirs)
    assert upstream.verdict is Verdict.UPSTREAM
    note = found(upstream, "upstream")
    assert note.level is Level.NOTE
    assert "mod is not needed" in note.message
    assert planned(AFTER, mine).verdict is Verdict.APPLIED
    assert planned(AFTER, mine._replace(files=mine.files[:1])).verdict is Verdict.APPLIED
    edited = MemoryTree(AFTER, released=AFTER | {OTHER: b"other"})
    assert one(MOD, edited, receipt=theirs).verdict is Verdict.APPLIED
    untold = MemoryTree(AFTER, released={PATH: AFTER[PATH]})
    assert one(MOD, untold, receipt=theirs).verdict is Verdict.APPLIED


def test_what_is_in_without_a_receipt_says_how_to_find_out_by_whom() -> None:
    answer = one(MOD, MemoryTree(AFTER, version="0.20.0"))
    note = found(answer, "no-receipt")
    assert (answer.verdict, note.level) == (Verdict.APPLIED, Level.NOTE)
    assert "`vllm-mods matrix mod --library /lib`" in note.message
    assert answer.variant is MINE
    assert answer.in_range


def test_a_deletion_is_the_release_s_own_only_where_something_can_say_so() -> None:
    gone = mod(variant(b"--- a/vllm/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-d = 1\n"))
    told = receipt()._replace(mods=(), files=())
    answer = one(gone, MemoryTree(BEFORE, released=BEFORE), receipt=told)
    assert answer.verdict is Verdict.APPLIED


@pytest.mark.slow
def test_a_mod_has_the_same_place_after_another_one_as_in_a_plan_with_it() -> None:
    twin = "def {}(value):\n    total = 0\n    total += value\n    return total\n\n\n"
    base = "first = 1\n\n\n" + twin.format("f1") + twin.format("f2")
    fixed = base.rpartition("+= value")
    fix = indexed(
        diff_of(PATH, base, f"{fixed[0]}-= value{fixed[2]}", context=1), base, "".join(fixed)
    )
    changed = base.replace("first = 1\n", "first = 1\nmore = 1\nand_more = 1\n")
    other = mod(variant(diff_of(PATH, base, changed)), name="other")
    fixing = mod(variant(fix), name="fixing")

    together = plan([other, fixing], MemoryTree({PATH: base.encode()}))
    assert together.ok
    row = ReceiptFile(PATH, sha256(base.encode()), sha256(changed.encode()))
    has = ReceiptMod("other", "1", other.digest, "one", "applies", (FileHash(*row[:3]),))
    files = {PATH: changed.encode(), original(PATH): base.encode()}
    after = one(fixing, MemoryTree(files), receipt=Receipt("0.19.1", (has,), (row,)))
    assert [change.after for change in after.changes] == [
        change.after for change in together.changes
    ]
    files[original(PATH)] = b"damaged"
    alone = one(fixing, MemoryTree(files), receipt=Receipt("0.19.1", (has,), (row,)))
    assert alone.verdict is Verdict.MISPLACED
