"""Whole files, new files, deletions and renames: nothing that is there is replaced unseen."""

from __future__ import annotations

from memory_tree import MemoryTree
from mod_making import diff_of, mod, patched, variant
from small_plans import PATH, codes, found, one, tree

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import FileChange, Mod, OverlayFile, TemplateFile, Verdict

NEW = b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+n = 1\n"
GONE = b"--- a/vllm/d.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-d = 1\n-e = 1\n"
RENAME = b"diff --git a/vllm/o.py b/vllm/p.py\nrename from vllm/o.py\nrename to vllm/p.py\n"
RENAMED_AND_CHANGED = (
    b"diff --git a/vllm/o.py b/vllm/p.py\nrename from vllm/o.py\nrename to vllm/p.py\n"
    b"--- a/vllm/o.py\n+++ b/vllm/p.py\n@@ -1 +1 @@\n-o = 1\n+o = 2\n"
)


def overlaid(data: bytes = b"new = 1\n", *replaces: bytes) -> Mod:
    known = tuple(sha256(one) or "" for one in replaces)
    file = OverlayFile(source="o/w.py", path="vllm/w.py", data=data, replaces=known)
    return mod(variant(overlay=(file,)))


def test_a_new_file_has_the_mode_of_one_that_anybody_may_read() -> None:
    assert one(mod(variant(NEW)), MemoryTree({})).changes == (
        FileChange("vllm/n.py", None, b"n = 1\n", 0o644),
    )
    assert one(overlaid(), MemoryTree({})).changes == (
        FileChange("vllm/w.py", None, b"new = 1\n", 0o644),
    )


def test_a_new_file_that_is_there_already_is_not_written_over() -> None:
    planned = one(mod(variant(NEW)), MemoryTree({"vllm/n.py": b"mine\n"}))
    assert planned.verdict is Verdict.CONFLICT
    finding = found(planned, "file-there")
    assert finding.path == "vllm/n.py"
    assert finding.message == "vllm/n.py already exists, but the patch creates it"
    empty = one(mod(variant(NEW)), MemoryTree({"vllm/n.py": b""}))
    assert empty.verdict is Verdict.CONFLICT


def test_an_empty_new_file_is_made() -> None:
    patch = b"diff --git a/vllm/e.py b/vllm/e.py\nnew file mode 100644\n"
    planned = one(mod(variant(patch)), MemoryTree({}))
    assert planned.changes == (FileChange("vllm/e.py", None, b"", 0o644),)
    assert one(mod(variant(patch)), MemoryTree({"vllm/e.py": b""})).verdict is Verdict.APPLIED


def test_a_file_that_is_not_as_the_deletion_has_it_stays() -> None:
    planned = one(mod(variant(GONE)), MemoryTree({"vllm/d.py": b"d = 1\ne = 2\n"}))
    finding = found(planned, "text")
    assert (planned.verdict, finding.path, finding.line) == (Verdict.CONFLICT, "vllm/d.py", 1)
    assert finding.message == "the patch deletes vllm/d.py, but its contents differ"
    gone = one(mod(variant(GONE)), MemoryTree({"vllm/d.py": b"d = 1\ne = 1\n"}))
    assert gone.changes == (FileChange("vllm/d.py", b"d = 1\ne = 1\n", None),)


def test_a_file_that_is_removed_is_gone_from_a_package_that_the_tree_has() -> None:
    patch = b"--- a/%b\n+++ /dev/null\n@@ -1 +0,0 @@\n-a = 1\n"
    planned = one(mod(variant(patch % b"sub/d.py")), MemoryTree({"vllm/e.py": b""}))
    assert (planned.verdict, codes(planned)) == (Verdict.UNREADABLE, {"not-in-tree"})
    gone = one(mod(variant(patch % b"vllm/sub/d.py")), MemoryTree({"vllm/e.py": b""}))
    assert gone.verdict is Verdict.APPLIED


def test_a_rename_does_not_write_over_what_has_the_new_name() -> None:
    files = {"vllm/o.py": b"o = 1\n", "vllm/p.py": b"p = 1\n"}
    planned = one(mod(variant(RENAME)), MemoryTree(files))
    finding = found(planned, "file-there")
    assert (planned.verdict, finding.path) == (Verdict.CONFLICT, "vllm/p.py")
    assert "so vllm/o.py cannot be renamed to it" in finding.message


def test_a_file_that_is_renamed_and_changed_is_both_and_is_seen_as_in() -> None:
    files = {"vllm/o.py": b"o = 1\n"}
    planned = one(mod(variant(RENAMED_AND_CHANGED)), MemoryTree(files))
    assert planned.verdict is Verdict.APPLIES
    assert patched(files, planned) == {"vllm/p.py": b"o = 2\n"}
    again = one(mod(variant(RENAMED_AND_CHANGED)), MemoryTree({"vllm/p.py": b"o = 2\n"}))
    assert again.verdict is Verdict.APPLIED


def test_a_file_that_is_gone_is_missing() -> None:
    for patch in (RENAME, diff_of("vllm/x.py", "a = 1\n", "a = 2\n")):
        planned = one(mod(variant(patch)), MemoryTree({"vllm/other.py": b""}))
        assert planned.verdict is Verdict.MISSING
        assert codes(planned) == {"file-gone"}
        finding = planned.findings[0]
        assert finding.message == f"{finding.path} does not exist"


def test_a_file_that_nothing_names_any_more_is_said_to_be_superseded() -> None:
    base = "class Gone:\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    e = 5\n"
    patch = diff_of(PATH, base, base.replace("d = 4", "d = 5"), context=1, section="class Gone:")
    bare = diff_of(PATH, "q = 1\n", "q = 2\n")
    planned = one(mod(variant(patch)), MemoryTree({"vllm/other.py": b"x = 1\n"}))
    assert planned.verdict is Verdict.MISSING
    finding = found(planned, "superseded")
    assert (finding.path, finding.scope) == (PATH, "Gone")
    assert finding.message.startswith(f"{PATH} does not exist; this version no longer has it: ")
    named = one(mod(variant(patch)), MemoryTree({"vllm/other.py": b"Gone\n"}))
    assert codes(named) == {"file-gone"}
    assert codes(one(mod(variant(bare)), MemoryTree({"vllm/other.py": b""}))) == {"file-gone"}


def test_a_whole_file_replaces_only_what_it_says_it_knows() -> None:
    there = MemoryTree({"vllm/w.py": b"old\n"})
    unseen = one(overlaid(), there)
    assert unseen.verdict is Verdict.CONFLICT
    finding = found(unseen, "file-there")
    assert finding.path == "vllm/w.py"
    assert (
        "with different contents from o/w.py; vllm-mods replaces no unknown file" in finding.message
    )
    known = one(overlaid(b"new = 1\n", b"older\n", b"old\n"), there)
    assert known.verdict is Verdict.APPLIES
    # and the mode of what is there stays
    assert known.changes == (FileChange("vllm/w.py", b"old\n", b"new = 1\n", None),)


def test_a_whole_file_that_is_in_beside_a_patch_that_is_not_is_half_of_the_mod() -> None:
    file = OverlayFile(source="o/w.py", path="vllm/w.py", data=b"new = 1\n")
    both = mod(variant(diff_of(PATH, "a = 1\n", "a = 2\n"), overlay=(file,)))
    files = {PATH: b"a = 1\n", "vllm/w.py": b"new = 1\n"}
    planned = one(both, MemoryTree(files))
    assert planned.verdict is Verdict.PARTIAL
    message = found(planned, "half-applied").message
    assert message == "already applied: o/w.py; not applied: one/0.patch"
    assert one(both, MemoryTree(files | {PATH: b"a = 2\n"})).verdict is Verdict.APPLIED
    other = one(both, MemoryTree({PATH: b"a = 2\n"}))
    message = found(other, "half-applied").message
    assert message == "already applied: one/0.patch; not applied: o/w.py"
    neither = one(both, MemoryTree({PATH: b"a = 1\n"}))
    assert [change.path for change in neither.changes] == ["vllm/w.py", PATH]


def test_a_whole_file_that_is_there_and_an_unfit_patch_are_both_told() -> None:
    file = OverlayFile(source="o/w.py", path="vllm/w.py", data=b"new = 1\n", replaces=("0" * 64,))
    both = mod(variant(diff_of(PATH, "a = 1\n", "a = 2\n"), overlay=(file,)))
    planned = one(both, MemoryTree({PATH: b"b = 1\n", "vllm/w.py": b"other\n"}))
    assert codes(planned) == {"text", "file-there"}
    assert planned.verdict is Verdict.CONFLICT


def test_a_whole_file_that_is_there_as_it_would_be_is_told_as_such() -> None:
    file = OverlayFile(source="o/w.py", path="vllm/w.py", data=b"new = 1\n")
    both = mod(variant(diff_of(PATH, "a = 1\n", "a = 2\n"), overlay=(file,), vllm="<0.1"))
    there = MemoryTree({PATH: b"b = 1\n", "vllm/w.py": b"new = 1\n"}, pristine=True)
    message = found(one(both, there), "file-there").message
    assert message == "vllm/w.py already exists, with the same bytes"


def test_a_mode_is_told_as_what_a_tree_does_not_say() -> None:
    mode = b"diff --git a/vllm/x.py b/vllm/x.py\nold mode 100644\nnew mode 100755\n"
    note = found(one(mod(variant(mode)), tree("a = 1\n")), "mode")
    assert (note.path, note.level.value) == (PATH, "note")
    assert f"{PATH} gets the permission bits 0755" in note.message


def test_a_file_that_is_gone_is_named_by_the_function_of_its_header() -> None:
    base = "x = 1\ny = 2\nz = 3\n"
    for header, name in (("def f(a):", "f"), ("async def g():", "g"), ("x = 1", None)):
        patch = diff_of(PATH, base, base.replace("y = 2", "y = 3"), section=header)
        planned = one(mod(variant(patch)), MemoryTree({"vllm/other.py": b"def f(): g()\n"}))
        assert planned.verdict is Verdict.MISSING
        assert planned.findings[0].scope == name


def test_templates_go_where_the_caller_says() -> None:
    one_file = TemplateFile(name="t", file="t.jinja", source="templates/t.jinja", data=b"T")
    template = mod(variant(templates=(one_file,)))
    in_tree = one(template, MemoryTree({}))
    assert in_tree.changes == (FileChange(".vllm-mods/templates/t.jinja", None, b"T", 0o644),)
    there = MemoryTree({"/w/t.jinja": b"T", ".vllm-mods/templates/t.jinja": b"other"})
    assert one(template, there, workspace="/w").verdict is Verdict.APPLIED
    assert one(template, there).verdict is Verdict.CONFLICT


def test_a_file_that_is_made_and_changed_by_the_same_mod_is_one_change() -> None:
    two = mod(variant(NEW, diff_of("vllm/n.py", "n = 1\n", "n = 2\n")))
    planned = one(two, MemoryTree({}))
    assert planned.changes == (FileChange("vllm/n.py", None, b"n = 2\n", 0o644),)
    assert one(two, MemoryTree({"vllm/n.py": b"n = 2\n"})).verdict is Verdict.APPLIED


def test_one_file_that_cannot_be_read_is_named_and_the_others_are_looked_at() -> None:
    class Torn(MemoryTree):
        def read(self, path: str) -> bytes | None:
            if path == "vllm/y.py":
                raise TreeError("vllm/y.py is a link")
            return super().read(path)

    two = mod(variant(diff_of(PATH, "a = 1\n", "a = 2\n"), diff_of("vllm/y.py", "b\n", "c\n")))
    planned = one(two, Torn({PATH: b"z = 1\n"}))
    assert planned.verdict is Verdict.UNREADABLE
    assert planned.changes == ()
    assert [finding.message for finding in planned.findings] == ["vllm/y.py is a link"]


def test_python_that_cannot_be_read_proves_no_place() -> None:
    base = "def f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n"
    patch = diff_of(PATH, base, base.replace("b = 2", "b = 3"), context=1)
    planned = one(mod(variant(patch)), tree(f"{base}def (:\n"))
    finding = found(planned, "unparsable")
    assert (planned.verdict, finding.path) == (Verdict.UNREADABLE, PATH)
    assert finding.message.startswith(f"{PATH} cannot be parsed as Python, so nothing proves")
    # what is not Python need not be
    other = diff_of("vllm/x.txt", base, base.replace("b = 2", "b = 3"), context=1)
    text = MemoryTree({"vllm/x.txt": f"{base}def (:\n".encode()})
    assert one(mod(variant(other)), text).verdict is Verdict.APPLIES
