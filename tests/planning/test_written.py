"""Where a variant's hunks were written, recorded on the tree that they were written for, and given to its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, indexed, mod, variant
from small_plans import PATH, tree

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import OverlayFile, Variant
from vllm_mods.formats.mod_lock import WrittenFile, WrittenFor, WrittenHunk
from vllm_mods.placing.target import blob_id
from vllm_mods.planning import patching, written
from vllm_mods.planning.known_trees import WORKSPACE

if TYPE_CHECKING:
    from vllm_mods.base.tree import Tree
    from vllm_mods.planning.part_step import Part

LINES = ["class C:", "    def f(self):", "        a = 1", "", "    def g(self):", "        b = 1"]
TEXT = "\n".join([*LINES, "", "", "m = 1", ""])
DONE = TEXT.replace("a = 1", "a = 2").replace("m = 1", "m = 2")
V = variant(diff_of(PATH, TEXT, DONE, context=1))
NEW = b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+n = 1\n"
GONE = b"--- a/vllm/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-d = 1\n"
HUNKS = (WrittenHunk("one/0.patch", PATH, 1, ("C.f",)), WrittenHunk("one/0.patch", PATH, 2, ("",)))
FILE = WrittenFile("one/0.patch", PATH, blob_id(TEXT.encode()), blob_id(DONE.encode()))


def parts(made: Variant = V) -> tuple[Part, ...]:
    return patching.parts_of(mod(made), made, WORKSPACE)


def record(there: Tree, made: Variant = V, base: str | None = None) -> WrittenFor | None:
    return written.record(made, parts(made), there, base)


def test_files_and_what_encloses_each_hunk_are_recorded_of_the_tree_that_has_every_line() -> None:
    place = WrittenFor("one", "0.19.1", written.digest(V), (FILE,), HUNKS)
    assert record(tree(TEXT)) == place
    assert record(tree(TEXT, version=None)) == place._replace(base="memory")
    assert record(tree(TEXT), base="fork") == place._replace(base="fork")


class Broken(MemoryTree):
    def read(self, path: str) -> bytes | None:
        raise TreeError(f"{path} cannot be read")


@pytest.mark.parametrize(
    "there", [tree(f"# moved\n{TEXT}"), tree(DONE), MemoryTree({}), Broken({})]
)
def test_of_any_other_tree_nothing_is_recorded(there: MemoryTree) -> None:
    assert record(there) is None
    assert written.record_parts(V, parts(), [there]) is None


def test_parts_lie_on_each_other_and_files_that_come_and_go_have_no_place() -> None:
    again = diff_of(PATH, DONE, DONE.replace("m = 2", "m = 3"), context=1)
    overlay = (OverlayFile("o.py", "vllm/o.py", b""),)
    made = variant(V.patches[0].data, again, NEW, GONE, overlay=overlay)
    there = MemoryTree({PATH: TEXT.encode(), "vllm/d.py": b"d = 1\n"})
    place = record(there, made)
    assert place is not None
    assert [(one.patch, one.path) for one in place.files] == [
        ("one/0.patch", PATH),
        ("one/1.patch", PATH),
    ]
    assert place.hunks == (*HUNKS, WrittenHunk("one/1.patch", PATH, 1, ("",)))
    for path in ("vllm/n.py", "vllm/o.py"):
        assert record(MemoryTree({**there.files, path: b"mine"}), made) is None
    assert record(tree(TEXT), made) is None  # there is nothing to remove


def test_a_renamed_file_is_recorded_by_its_old_name_and_has_the_new_one_afterwards() -> None:
    head = f"diff --git a/{PATH} b/vllm/z.py\nrename from {PATH}\nrename to vllm/z.py\n"
    renamed = head.encode() + V.patches[0].data.replace(b"+++ b/vllm/x.py", b"+++ b/vllm/z.py")
    again = diff_of("vllm/z.py", DONE, DONE.replace("m = 2", "m = 3"), context=1)
    place = record(tree(TEXT), variant(renamed, again))
    assert place is not None
    assert [(one.path, one.before) for one in place.files] == [
        (PATH, FILE.before),
        ("vllm/z.py", FILE.after),
    ]
    made = variant(renamed, NEW.replace(b"vllm/n.py", PATH.encode()))
    assert record(tree(TEXT), made) is not None


def test_each_part_is_recorded_in_the_first_tree_that_has_its_lines() -> None:
    made = variant(V.patches[0].data, diff_of("vllm/y.py", "y = 1\n", "y = 2\n"), NEW)
    old = MemoryTree({PATH: b"", "vllm/y.py": b"y = 1\n"}, version="0.18.0")
    new = MemoryTree({PATH: TEXT.encode(), "vllm/y.py": b"y = 0\n"}, version="0.19.0")
    later = MemoryTree({**new.files, "vllm/y.py": b"y = 1\n"}, version="0.20.0")
    y = WrittenHunk("one/1.patch", "vllm/y.py", 1, ("",))
    trees = [Broken({}), old, new, later]
    place = written.record_parts(made, parts(made), trees)
    assert place is not None
    assert (place.base, place.hunks) == ("0.19.0", (*HUNKS, y))
    assert [one.path for one in place.files] == [PATH, "vllm/y.py"]
    nameless = MemoryTree({"vllm/y.py": b"y = 1\n"}, version=None)
    place = written.record_parts(made, parts(made), [nameless])
    assert place is not None
    assert (place.base, place.hunks) == ("memory", (y,))


def test_parts_are_given_what_is_known_of_them() -> None:
    made = variant(V.patches[0].data, diff_of("vllm/y.py", "y = 1\n", "y = 2\n"), NEW)
    given = written.attach(
        parts(made), WrittenFor("one", "0.19.1", "", (FILE,), (*HUNKS, HUNKS[0]._replace(path="z")))
    )
    assert [dict(part.written) for part in given] == [{1: ("C.f",), 2: ("",)}, {}, {}]
    blobs = [(part.diff.old_blob, part.diff.new_blob) for part in given if part.diff]
    assert blobs[0] == (FILE.before, FILE.after)
    assert given[1:] == parts(made)[1:]


def test_what_a_patch_says_itself_of_its_blobs_counts() -> None:
    made = variant(indexed(V.patches[0].data, "old", "new"))
    (own,) = parts(made)
    (given,) = written.attach((own,), WrittenFor("one", "0.19.1", "", (FILE,), ()))
    assert own.diff is not None
    assert own.diff.old_blob
    assert given == own._replace(written={})
