"""What a mod.lock says of a tree is believed where every byte is as it says, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, lock_of, mod, variant
from small_plans import PATH, after, codes, found, one, tree

from vllm_mods.base.model import Mod, ModPlan, OverlayFile, TemplateFile, Verdict
from vllm_mods.formats import mod_lock
from vllm_mods.formats.receipt import FileHash
from vllm_mods.planning import lock_entries
from vllm_mods.planning.planner import plan

TEXT = "def f():\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    return a\n"
DONE = TEXT.replace("b = 2", "b = 9")
PATCH = diff_of(PATH, TEXT, DONE, context=1, section="def f():")


def locked(made: Mod, *trees: MemoryTree, **more: Any) -> Mod:
    """Return the mod with a lock that has its plan on each of the trees."""
    plans = [one(made, there) for there in trees]
    assert all(planned.verdict.writes for planned in plans)
    first = mod_lock.parse(lock_of(plans[0]), "")
    states = [mod_lock.parse(lock_of(planned), "").trees[0] for planned in plans]
    states = [state._replace(**more) for state in states]
    return made._replace(lock=mod_lock.dump(first._replace(trees=tuple(states))))


def same(quick: ModPlan, long: ModPlan) -> bool:
    """Tell whether two plans agree in all that does not say how they were made."""

    def shown(planned: ModPlan) -> tuple[object, ...]:
        places = [hunk._replace(proof="") for hunk in planned.hunks]
        return (planned.verdict, planned.variant, planned.in_range, planned.changes, places)

    return shown(quick) == shown(long)


def test_a_known_tree_is_planned_as_an_unknown_one_and_says_what_proves_it() -> None:
    plain = mod(variant(PATCH))
    long = one(plain, tree(TEXT))
    quick = one(locked(plain, tree(TEXT)), tree(TEXT))
    assert quick.vouched
    assert same(quick, long)
    assert (quick.beside, quick.witness) == (long.beside, long.witness)
    assert {hunk.proof for hunk in quick.hunks} == {"file"}


def test_a_hunk_that_lands_elsewhere_is_moved_by_the_lock_too() -> None:
    plain, shifted = mod(variant(PATCH)), tree(f"import os\n\n\n{TEXT}")
    quick = one(locked(plain, shifted), shifted)
    assert quick.vouched
    assert same(quick, one(plain, shifted))
    assert quick.verdict is Verdict.MOVED
    assert [(hunk.line, hunk.offset, hunk.scope) for hunk in quick.hunks] == [(5, 3, "f")]
    assert "applies at line 5, offset +3" in found(quick, "offset").message


@pytest.mark.slow
def test_each_of_the_trees_in_a_lock_is_known() -> None:
    plain, trees = mod(variant(PATCH)), [tree(TEXT), tree(f"import os\n\n\n{TEXT}")]
    both = locked(plain, *trees)
    for there in trees:
        assert one(both, there).vouched
        assert same(one(both, there), one(plain, there))
    other = tree(f"import re\n\n\n{TEXT}")
    assert not one(both, other).vouched
    assert one(both, other).verdict is Verdict.MOVED


def test_of_two_states_that_hold_the_one_recorded_on_this_version_counts() -> None:
    there = tree(TEXT)
    made = locked(mod(variant(PATCH)), there)
    lock = mod_lock.parse(made.lock or b"", "")
    (state,) = lock.trees
    older = state._replace(vllm=("0.1.0",), proof="other")
    both = made._replace(lock=mod_lock.dump(lock._replace(trees=(older, state))))
    assert (one(both, there).vouched, one(both, there).proof) == (True, "types")


def test_a_state_of_python_that_no_type_checker_was_asked_of_proves_nothing() -> None:
    made = locked(mod(variant(PATCH)), tree(TEXT))
    assert one(made, tree(TEXT)).vouched
    untyped = locked(mod(variant(PATCH)), tree(TEXT), proof="")
    assert not one(untyped, tree(TEXT)).vouched


def test_a_patch_of_several_files_is_known_by_all_of_them() -> None:
    files = {PATH: TEXT.encode(), "vllm/y.py": b"y = 1\n"}
    plain = mod(variant(PATCH, diff_of("vllm/y.py", "y = 1\n", "y = 2\n")))
    known = locked(plain, MemoryTree(files))
    assert one(known, MemoryTree(files)).vouched
    assert same(one(known, MemoryTree(files)), one(plain, MemoryTree(files)))
    edited = MemoryTree(files | {"vllm/y.py": b"# y\ny = 1\n"})
    assert not one(known, edited).vouched
    assert same(one(known, edited), one(plain, edited))


def test_a_file_that_was_not_there_when_the_lock_was_made_is_not_known() -> None:
    overlay = OverlayFile(source="o.py", path="vllm/new.py", data=b"n = 1\n")
    known = locked(mod(variant(overlay=(overlay,))), MemoryTree({}))
    quick = one(known, MemoryTree({}))
    assert quick.vouched
    assert [(change.path, change.mode) for change in quick.changes] == [("vllm/new.py", 0o644)]
    there = one(known, MemoryTree({"vllm/new.py": b"mine\n"}))
    assert (there.vouched, there.verdict) == (False, Verdict.CONFLICT)
    same_bytes = one(known, MemoryTree({"vllm/new.py": b"n = 1\n"}))
    assert (same_bytes.vouched, same_bytes.verdict) == (False, Verdict.APPLIED)


def test_a_known_file_that_is_replaced_keeps_its_mode() -> None:
    from vllm_mods.base.digest import sha256

    overlay = OverlayFile("o.py", "vllm/new.py", b"n = 2\n", replaces=(sha256(b"n = 1\n") or "",))
    there = MemoryTree({"vllm/new.py": b"n = 1\n"})
    quick = one(locked(mod(variant(overlay=(overlay,))), there), there)
    assert quick.vouched
    assert [change.mode for change in quick.changes] == [None]


def test_a_lock_speaks_of_templates_wherever_they_go() -> None:
    files = {"t.jinja": TemplateFile("t", "t.jinja", "templates/t.jinja", b"T")}
    plain = mod(variant(PATCH, templates=tuple(files.values())))
    known = locked(plain, tree(TEXT))
    for more in ({}, {"workspace": "/workspace"}):
        quick = one(known, tree(TEXT), **more)
        assert quick.vouched
        assert same(quick, one(plain, tree(TEXT), **more))
    there = MemoryTree({PATH: TEXT.encode(), "/workspace/t.jinja": b"other"})
    assert not one(known, there, workspace="/workspace").vouched
    assert one(known, there).vouched


@pytest.mark.parametrize(
    "patch",
    [
        b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+n = 1\n",
        b"--- a/vllm/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-d = 1\n",
        b"diff --git a/vllm/d.py b/vllm/p.py\nrename from vllm/d.py\nrename to vllm/p.py\n",
    ],
)
def test_files_that_come_and_go_are_put_in_the_long_way(patch: bytes) -> None:
    plain = mod(variant(PATCH, patch))
    there = MemoryTree({PATH: TEXT.encode(), "vllm/d.py": b"d = 1\n"})
    planned = one(locked(plain, there), there)
    assert not planned.vouched
    assert same(planned, one(plain, there))


@pytest.mark.slow
def test_a_lock_without_a_place_for_each_hunk_is_not_believed() -> None:
    plain = mod(variant(PATCH))
    for more in ({"hunks": ()}, {"files": ()}, {"witness": ()}, {"witness": ("0" * 64,)}):
        planned = one(locked(plain, tree(TEXT), **more), tree(TEXT))
        assert not planned.vouched, more
        assert same(planned, one(plain, tree(TEXT))), more


def test_a_lock_whose_result_is_another_file_is_not_believed() -> None:
    plain = mod(variant(PATCH))
    state = mod_lock.parse(locked(plain, tree(TEXT)).lock or b"", "").trees[0]
    (file,) = state.files
    for files in (
        (file._replace(after="0" * 64),),
        (file, FileHash("vllm/other.py", None, "0" * 64)),
    ):
        planned = one(locked(plain, tree(TEXT), files=files), tree(TEXT))
        assert not planned.vouched
        assert after(planned) == DONE


def test_a_lock_that_names_no_variant_of_the_mod_is_stale() -> None:
    plain = mod(variant(PATCH))
    planned = one(locked(plain, tree(TEXT), variant="gone"), tree(TEXT))
    assert not planned.vouched
    note = found(planned, "stale-lock")
    assert note.level.value == "note"
    assert "mod was changed later" in note.message
    assert "stale-lock" not in codes(one(locked(plain, tree(TEXT)), tree(TEXT)))
    assert "stale-lock" not in codes(one(plain, tree(TEXT)))


def test_the_lock_says_whether_a_version_that_it_names_is_in_range() -> None:
    plain = mod(variant(PATCH, vllm=">=0.30"))
    assert not one(plain, tree(TEXT)).in_range
    inside = locked(plain, tree(TEXT), in_range=True)
    assert one(inside, tree(TEXT)).in_range
    assert not one(inside, tree(TEXT, version="0.19.2")).in_range
    assert one(inside, tree(TEXT, version="0.30.0")).in_range


def test_a_known_tree_of_another_range_has_its_note_and_is_refused_where_the_range_is_kept() -> (
    None
):
    plain = mod(variant(PATCH, vllm=">=0.30", python=("flash",)))
    known = locked(plain, tree(TEXT))
    quick = one(known, tree(TEXT))
    assert quick.vouched
    assert codes(quick) == {"version-range", "python-requirement"}
    strict = one(known, tree(TEXT), strict_version=True)
    assert (strict.vouched, strict.verdict) == (False, Verdict.UNSUPPORTED)


def test_the_witness_of_the_files_beside_is_the_one_that_locks_hold() -> None:
    from vllm_mods.base.digest import sha256

    base = "class Base:\n    def f(self, x):\n        pass\n"
    files = {
        "vllm/base.py": base,
        PATH: "from vllm.base import Base\n\n\nclass A(Base):\n    n = 1\n",
    }
    patch = diff_of(PATH, files[PATH], files[PATH] + "\n    def f(self, x):\n        return x\n")
    there = MemoryTree({path: text.encode() for path, text in files.items()})
    long = one(mod(variant(patch)), there)
    assert "vllm/base.py" in long.beside
    rows = (f"{path} {sha256(there.read(path))}\n" for path in long.beside)
    assert long.witness == sha256("".join(rows).encode())
    quick = one(locked(mod(variant(patch)), there), there)
    assert quick.vouched
    assert (quick.beside, quick.witness) == (long.beside, long.witness)


def test_what_the_lock_proves_by_and_its_optional_patches_are_said() -> None:
    free = diff_of("vllm/y.py", "y = 1\n", "y = 2\n")
    both = variant(PATCH, free)
    needed, extra = both.patches
    plain = mod(both._replace(patches=(needed, extra._replace(optional=True))))
    there = MemoryTree({PATH: TEXT.encode(), "vllm/y.py": b"y = 1\n"})
    quick = one(locked(plain, there), there)
    assert (quick.vouched, quick.proof) == (True, "types")
    assert quick.unexamined
    assert quick.optional == one(plain, there).optional != ()


def test_a_mod_is_known_on_what_the_mods_before_it_left() -> None:
    low = mod(variant(PATCH), name="low")
    high = mod(variant(diff_of(PATH, DONE, DONE.replace("c = 3", "c = 9"), context=1)), name="high")
    known = locked(high, tree(DONE))
    both = plan([low, known], tree(TEXT))
    assert [planned.vouched for planned in both.mods] == [False, True]
    assert both.changes[0].after == DONE.replace("c = 3", "c = 9").encode()
    alone = one(known, tree(TEXT))
    assert not alone.vouched


@pytest.mark.slow
def test_users_of_what_is_removed_are_asked_for_on_a_remote_tree_too() -> None:
    gone = "def load():\n    return 1\n\n\ndef save():\n    return 2\n"
    user = "from vllm.x import load\n\nload()\n"
    files = {f"vllm/f{n}.py": b"A = 1\n" for n in range(30)}
    files |= {"vllm/x.py": gone.encode(), "vllm/zz/user.py": user.encode()}
    removes = mod(variant(diff_of("vllm/x.py", gone, gone.partition("\n\n\n")[2])))
    whole = plan([removes], MemoryTree(files)).mods[0]
    assert whole.verdict is Verdict.UNFIT
    # a remote tree is read whole, too
    assert plan([removes], MemoryTree(files, remote=True)).mods[0].verdict is Verdict.UNFIT
    adds = mod(variant(diff_of("vllm/x.py", gone, f"{gone}\n\nMORE = 1\n")))
    assert lock_entries.entry(plan([adds], MemoryTree(files, remote=True)).mods[0])
