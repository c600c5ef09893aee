"""mod.lock made from answers, and a committed one held against them."""

from __future__ import annotations

import pytest
from matrix_making import cell
from mod_making import mod, variant

from vllm_mods.base.model import Mod
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import LockedTree
from vllm_mods.formats.receipt import FileHash
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.locks import Updated, against_committed, lock_from, news, update

MOD = mod(variant(vllm=">=0.19"), manifest=b"schema = 1\n")
FILE = FileHash(path="vllm/a.py", before="1" * 64, after="2" * 64)
STATE = LockedTree(
    vllm=(),
    in_range=True,
    variant="one",
    verdict="applies",
    files=(FILE,),
    hunks=(),
    beside=(),
    witness=(),
)
GOOD = cell(locked=STATE, witness="w")
UPSTREAM = cell(verdict="upstream")
BAD = cell(verdict="conflict")
UNREAD = cell(verdict="unreadable", computed=False)


def computed(**cells: Cell) -> list[Cell]:
    named = {name[1:].replace("_", "."): one for name, one in cells.items()}
    return [one._replace(version=version, tree=f"pypi:{version}") for version, one in named.items()]


def committed(**cells: Cell) -> Mod:
    return MOD._replace(lock=mod_lock.dump(lock_from(MOD, computed(**cells))))


def codes(of: Mod, **cells: Cell) -> list[tuple[str, str | None]]:
    return [(one.code, one.tree) for one in against_committed(of, computed(**cells))]


def test_releases_of_one_state_share_an_entry() -> None:
    made = lock_from(MOD, computed(v0_19_0=GOOD, v0_19_1=GOOD, v0_20_0=UPSTREAM, v0_21_0=BAD))
    assert [tree.vllm for tree in made.trees] == [("0.19.0", "0.19.1")]
    assert made.others == (("0.20.0", "upstream"),)
    assert mod_lock.parse(mod_lock.dump(made), "mod.lock") == made


def test_a_lock_without_such_releases_is_written_as_ever() -> None:
    assert b"others" not in mod_lock.dump(lock_from(MOD, computed(v0_19_0=GOOD)))


def test_a_lock_that_says_what_is_found_is_good() -> None:
    whole = committed(v0_19_0=GOOD, v0_20_0=UPSTREAM)
    assert codes(whole, v0_19_0=GOOD, v0_20_0=UPSTREAM) == []
    assert codes(whole, v0_20_0=UPSTREAM) == []


@pytest.mark.parametrize(
    "changed",
    [
        GOOD._replace(locked=STATE._replace(verdict="moved")),
        GOOD._replace(locked=STATE._replace(files=(FILE._replace(after="3" * 64),))),
        GOOD._replace(witness="other"),
        GOOD._replace(locked=STATE._replace(beside=("vllm/b.py",))),
    ],
)
def test_any_difference_makes_it_stale(changed: Cell) -> None:
    assert codes(committed(v0_19_0=GOOD), v0_19_0=changed) == [("stale-lock", None)]


def test_a_release_that_it_does_not_know_makes_it_stale() -> None:
    assert codes(committed(v0_19_0=GOOD), v0_19_0=GOOD, v0_20_0=GOOD) == [("stale-lock", None)]


@pytest.mark.parametrize("before", [GOOD, UPSTREAM])
def test_what_got_worse_is_told(before: Cell) -> None:
    assert codes(committed(v0_19_0=before), v0_19_0=BAD) == [
        ("worse-than-baseline", "pypi:0.19.0"),
        ("stale-lock", None),
    ]


def test_what_was_bad_is_not_worse() -> None:
    assert codes(committed(v0_19_0=GOOD, v0_20_0=BAD), v0_19_0=GOOD, v0_20_0=BAD) == []


def test_one_of_two_builds_was_bad_already() -> None:
    builds = [BAD._replace(version="0.20.1", tree="pypi:build-0"), *computed(v0_20_1=GOOD)]
    of = MOD._replace(lock=mod_lock.dump(lock_from(MOD, builds)))
    assert [*against_committed(of, builds)] == []


def test_what_could_not_be_read_says_nothing() -> None:
    assert codes(committed(v0_19_0=GOOD), v0_19_0=UNREAD) == []


@pytest.mark.parametrize("data", [None, b"no lock", b"{}"])
def test_no_lock_and_no_good_one_are_stale(data: bytes | None) -> None:
    assert codes(MOD._replace(lock=data), v0_19_0=GOOD) == [("stale-lock", None)]


def test_a_lock_of_another_state_of_the_mod_is_stale() -> None:
    of = committed(v0_19_0=GOOD)._replace(digest="another")
    assert codes(of, v0_19_0=GOOD) == [("stale-lock", None)]


def test_the_command_that_updates_a_lock_names_the_mod_and_its_library() -> None:
    of = MOD._replace(lock=None, directory="/my lib/patches/mod")
    (problem,) = against_committed(of, [*computed(v0_19_0=GOOD)])
    command = f"vllm-mods matrix {MOD.name} --update-lock --library '/my lib'"
    assert problem.message.endswith(f"`{command}` updates it")


# --- written again -----------------------------------------------------------------

OTHER_STATE = GOOD._replace(
    locked=STATE._replace(files=(FILE._replace(before="7" * 64),)), witness="x"
)


def again(of: Mod, **cells: Cell) -> Updated:
    return update(of, computed(**cells))


def test_a_part_of_the_releases_looked_at_again_leaves_the_others_as_they_were() -> None:
    whole = {"v0_19_0": GOOD, "v0_19_1": GOOD, "v0_20_0": OTHER_STATE, "v0_21_0": UPSTREAM}
    of = committed(**whole)
    for label, answer in whole.items():
        made = again(of, **{label: answer})
        assert mod_lock.dump(made.lock) == of.lock
        assert len(made.kept) == 3
        assert (made.lost, made.why) == ((), None)


def test_what_was_looked_at_is_replaced_and_added_in_the_order_of_releases() -> None:
    of = committed(v0_20_0=GOOD, v0_21_0=UPSTREAM, v0_9_0=GOOD._replace(witness="v"))
    made = again(of, v0_19_0=GOOD, v0_21_0=OTHER_STATE, v0_22_0=BAD)
    assert [tree.vllm for tree in made.lock.trees] == [("0.9.0", "0.19.0", "0.20.0"), ("0.21.0",)]
    assert set(made.lock.trees[0].witness) == {"v", "w"}
    assert made.lock.others == ()
    assert made.kept == ("0.9.0", "0.20.0")


def test_what_no_longer_goes_in_is_out_of_the_lock() -> None:
    made = again(committed(v0_19_0=GOOD, v0_20_0=OTHER_STATE, v0_21_0=UPSTREAM), v0_20_0=BAD)
    assert [tree.vllm for tree in made.lock.trees] == [("0.19.0",)]
    assert made.lock.others == (("0.21.0", "upstream"),)


def test_a_witness_of_what_is_void_vouches_for_nothing_more() -> None:
    of = committed(v0_19_0=GOOD, v0_19_1=GOOD._replace(witness="void"), v0_20_0=OTHER_STATE)
    made = again(of, v0_19_1=BAD)
    assert [tree.witness for tree in made.lock.trees] == [("x",)]
    assert (made.kept, made.lost) == (("0.20.0",), ("0.19.0",))
    assert made.why == "had one entry for these and other releases, whose results now differ"


def test_nothing_is_kept_of_the_lock_of_another_state_of_the_mod() -> None:
    of = committed(v0_19_0=GOOD, v0_20_0=UPSTREAM, v0_21_0=GOOD)._replace(digest="another")
    made = again(of, v0_21_0=GOOD)
    assert [tree.vllm for tree in made.lock.trees] == [("0.21.0",)]
    assert (made.kept, made.lost) == ((), ("0.19.0", "0.20.0"))
    assert made.why == "was written before mod was changed"


@pytest.mark.parametrize("data", [None, b"no lock"])
def test_no_lock_or_none_that_can_be_read_is_written_from_what_was_found(
    data: bytes | None,
) -> None:
    made = again(MOD._replace(lock=data), v0_19_0=GOOD)
    assert made.lock == lock_from(MOD, computed(v0_19_0=GOOD))
    assert (made.why is None) == (data is None)


# --- news ---------------------------------------------------------------------------

LESS = GOOD._replace(locked=STATE._replace(files=()))
MORE = GOOD._replace(
    locked=STATE._replace(files=(FILE, FileHash(path="vllm/b.py", before=None, after="4" * 64)))
)


@pytest.mark.parametrize(
    ("answer", "is_news"),
    [
        (GOOD, False),
        (GOOD._replace(witness="other"), False),
        (LESS, False),
        (MORE, True),
        (OTHER_STATE, True),
        (UPSTREAM, True),
        (BAD, False),
        (UNREAD, False),
    ],
)
def test_a_lock_has_news_of_a_release_of_which_it_knows_no_such_files(
    answer: Cell,
    is_news: bool,  # noqa: FBT001
) -> None:
    of = committed(v0_19_0=GOOD, v0_20_0=UPSTREAM)
    assert news([of], computed(v0_19_0=answer)) == ("pypi:0.19.0",) * is_news


def test_a_release_that_a_lock_does_not_have_is_news_if_a_lock_would_have_it() -> None:
    of = committed(v0_19_0=GOOD, v0_20_0=UPSTREAM)
    answers = computed(v0_20_0=UPSTREAM, v0_21_0=UPSTREAM, v0_22_0=GOOD, v0_23_0=BAD)
    assert news([of], answers) == ("pypi:0.21.0", "pypi:0.22.0")


@pytest.mark.parametrize("data", [None, b"no lock"])
def test_without_a_lock_all_that_can_be_read_is_news(data: bytes | None) -> None:
    answers = computed(v0_19_0=BAD, v0_20_0=UNREAD)
    assert news([MOD._replace(lock=data)], answers) == ("pypi:0.19.0",)


def test_it_is_enough_that_one_mod_has_news() -> None:
    of = committed(v0_19_0=GOOD)
    cells = [*computed(v0_19_0=GOOD), *computed(v0_19_0=GOOD._replace(mod="other"))]
    assert news([of, MOD._replace(name="other")], cells) == ("pypi:0.19.0",)
    assert news([of, of._replace(name="other")], cells) == ()
