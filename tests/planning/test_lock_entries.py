"""What a plan adds to a mod.lock, and what of a lock holds on when its mod is another one."""

from __future__ import annotations

from typing import Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import PATH, one, tree

from vllm_mods.base.model import Mod, Verdict
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import Lock, LockedHunk, LockedTree, WrittenFor
from vllm_mods.formats.receipt import hashes
from vllm_mods.planning import lock_entries, written

TEXT = "def f():\n    a = 1\n    b = 2\n"
DONE = TEXT.replace("b = 2", "b = 9")
V = variant(diff_of(PATH, TEXT, DONE, context=1, section="def f():"), name="v")
W = variant(diff_of(PATH, "w = 1\n", "w = 2\n"), name="w")
MOD = mod(V, W, manifest=b'name = "mod"\n')


def places(*texts: str, base: str | None = None) -> tuple[WrittenFor, ...]:
    return tuple(place for text in texts for place in lock_entries.places_in(MOD, tree(text), base))


def test_an_entry_says_of_a_plan_what_proves_it_again() -> None:
    planned = one(MOD, tree(f"import os\n\n\n{TEXT}"))
    state = lock_entries.entry(planned._replace(proof="types", beside=("vllm/y.py",)))
    assert state == LockedTree(
        vllm=(),
        in_range=True,
        variant="v",
        verdict="moved",
        files=hashes(planned.changes),
        hunks=(LockedHunk("v/0.patch", PATH, 1, 5, "f"),),
        beside=("vllm/y.py",),
        witness=(),
        proof="types",
    )


@pytest.mark.parametrize("verdict", [Verdict.APPLIED, Verdict.UPSTREAM, Verdict.CONFLICT])
def test_what_writes_nothing_has_no_entry(verdict: Verdict) -> None:
    planned = one(MOD, tree(TEXT))._replace(verdict=verdict)
    assert lock_entries.entry(planned) is None
    assert lock_entries.first(MOD, [(planned, tree(TEXT, pristine=True))]) == {}


def test_a_lock_is_of_the_very_mod_and_of_the_patches_that_it_has() -> None:
    other = MOD._replace(variants=(V, W._replace(patches=V.patches)))
    known = places(TEXT, "w = 1\n")
    lock = lock_entries.of(other, (), others=[("0.20.0", "upstream")], written=iter(known))
    assert lock == Lock(
        mod="mod",
        version="1.0.0",
        digest=MOD.digest,
        trees=(),
        others=(("0.20.0", "upstream"),),
        written=known[:1],
    )


def test_every_variant_keeps_its_places_of_those_that_come_one_by_one() -> None:
    known = places(TEXT, "w = 1\n")
    assert len(known) == 2
    assert lock_entries.of(MOD, (), written=iter(known)).written == known


def first(version: str | None = "0.19.1", text: str = TEXT, **more: Any) -> Lock | None:
    there = MemoryTree({PATH: text.encode()}, version=version, **more)
    data = lock_entries.first(MOD, [(one(MOD, there), there)]).get("mod.lock")
    return None if data is None else mod_lock.parse(data, "")


@pytest.mark.parametrize(
    ("more", "vouches"),
    [
        ({"pristine": True}, True),
        ({"released": {PATH: TEXT.encode()}}, True),
        ({"released": {PATH: b""}}, False),
        ({}, False),
        ({"pristine": True, "version": None}, False),
        ({"pristine": True, "version": "0.19.1rc1"}, False),
    ],
)
def test_a_new_lock_vouches_for_a_release_as_it_was_shipped(
    more: dict[str, Any], *, vouches: bool
) -> None:
    lock = first(**more)
    assert lock is not None
    assert [state.vllm for state in lock.trees] == ([("0.19.1",)] if vouches else [])
    assert [place.variant for place in lock.written] == ["v"]
    if vouches:
        planned = one(MOD, tree(TEXT))
        assert [state.witness for state in lock.trees] == [(planned.witness,)]


def test_a_new_file_was_never_shipped_and_vouches_all_the_same() -> None:
    new = mod(variant(b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+n = 1\n"))
    there = MemoryTree({})
    data = lock_entries.first(new, [(one(new, there), there)]).get("mod.lock")
    assert data is not None
    assert [state.vllm for state in mod_lock.parse(data, "").trees] == [("0.19.1",)]


def test_without_a_release_and_a_place_there_is_no_new_lock() -> None:
    assert first(text=f"import os\n\n\n{TEXT}") is None
    moved = first(text=f"import os\n\n\n{TEXT}", pristine=True)
    assert moved is not None
    assert (len(moved.trees), moved.written) == (1, ())


def test_where_it_was_written_is_told_of_the_tree_as_it_was_before_the_mod() -> None:
    there = tree(TEXT)
    planned = one(MOD, there)
    patched = MemoryTree({PATH: DONE.encode()})
    data = lock_entries.first(MOD, [(planned, patched)]).get("mod.lock")
    assert data is not None
    assert mod_lock.parse(data, "").written == places(TEXT)


def test_places_are_of_the_variants_that_a_tree_was_the_base_of() -> None:
    assert [place.variant for place in places(TEXT)] == ["v"]
    assert [place.variant for place in places("w = 1\n")] == ["w"]
    assert places("other\n") == ()
    assert [place.base for place in places(TEXT, base="fork")] == ["fork"]


def test_one_state_of_files_is_one_entry_with_all_its_versions_and_witnesses() -> None:
    (a, b) = (lock_entries.entry(one(MOD, tree(text))) for text in (TEXT, f"# x\n{TEXT}"))
    assert a is not None
    assert b is not None
    rows = [(a, "1", "x"), (b, "2", "y"), (a, "3", "x"), (a, "1", "z")]
    assert lock_entries.merge_states(rows) == (
        a._replace(vllm=("1", "3"), witness=("x", "z")),
        b._replace(vllm=("2",), witness=("y",)),
    )


def locked() -> Mod:
    states = [lock_entries.entry(one(MOD, tree(text))) for text in (TEXT, "w = 1\n")]
    known = [state._replace(vllm=(str(n),)) for n, state in enumerate(states) if state]
    lock = lock_entries.of(MOD, known, others=[("9", "upstream")], written=places(TEXT, "w = 1\n"))
    return MOD._replace(lock=mod_lock.dump(lock))


def test_a_lock_of_another_state_of_the_mod_is_none_of_it() -> None:
    made = locked()
    lock = lock_entries.current(made)
    assert lock is not None
    assert [state.variant for state in lock.trees] == ["v", "w"]
    other = made._replace(digest="0" * 64)
    assert lock_entries.current(other) is None
    assert lock_entries.current(MOD) is None
    assert lock_entries.without_trees(other).lock is None
    assert lock_entries.with_variants(other, [V]).lock == other.lock


def test_a_lock_without_trees_says_still_where_its_mod_was_written() -> None:
    lock = lock_entries.current(lock_entries.without_trees(locked()))
    assert lock is not None
    assert (lock.trees, lock.written) == ((), places(TEXT, "w = 1\n"))


def test_of_some_variants_what_the_lock_says_of_these_stays() -> None:
    fewer = lock_entries.with_variants(locked(), [W])
    assert fewer.variants == (W,)
    lock = lock_entries.current(fewer)
    assert lock is not None
    assert [state.variant for state in lock.trees] == ["w"]


def test_a_variant_more_leaves_what_a_lock_says_of_the_others() -> None:
    old = lock_entries.current(locked())
    assert old is not None
    more = variant(diff_of(PATH, "m = 1\n", "m = 2\n"), name="more")
    longer = MOD._replace(variants=(V, W, more), digest="1" * 64)
    there = tree("m = 1\n")
    planned = one(longer, there)
    new = mod_lock.parse(lock_entries.extend(old, longer, planned, there, "0.21.0"), "")
    assert new.trees[:2] == old.trees
    assert [(state.variant, state.vllm, state.witness) for state in new.trees[2:]] == [
        ("more", ("0.21.0",), (planned.witness,))
    ]
    assert (new.others, new.digest) == (old.others, "1" * 64)
    assert [(place.variant, place.base) for place in new.written] == [
        ("v", "0.19.1"),
        ("w", "0.19.1"),
        ("more", "0.21.0"),
    ]
    refused = one(longer, tree("other\n"))
    same = mod_lock.parse(lock_entries.extend(old, longer, refused, there, "0.21.0"), "")
    assert (same.trees, same.written) == (old.trees, old.written)


def test_the_digest_of_patches_is_of_their_bytes_names_and_folders() -> None:
    (patch,) = V.patches
    others = [
        patch._replace(data=b""),
        patch._replace(source="x.patch"),
        patch._replace(root="vllm"),
    ]
    all_ = [written.digest(V._replace(patches=(one_,))) for one_ in (patch, *others)]
    assert len(set(all_)) == 4
    assert written.digest(V) == all_[0] == written.digest(V._replace(id="other"))
    (place,) = places(TEXT)
    assert written.of_variant((place,), V) == place
    assert written.of_variant((place,), V._replace(id="other")) is None
    assert written.of_variant((place,), V._replace(patches=(others[0],))) is None
    assert written.of_variant((place._replace(patches="other"), place), V) == place
