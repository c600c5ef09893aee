"""Two mods on one tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.fit.world import SummaryCache
from vllm_mods.matrices import pairs
from vllm_mods.matrices.answer import PairAnswer, answer_of
from vllm_mods.matrices.cell import Together
from vllm_mods.planning import planner

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod

SOURCE = """\
class Loader:
    def load(self, name):
        first = 1
        second = 2
        third = 3
        fourth = 4
        fifth = 5
        sixth = 6
        seventh = 7
        eighth = 8
        return name

    def save(self, name):
        ninth = 9
        tenth = 10
        return name
"""
TREE = MemoryTree({"vllm/__init__.py": b"", "vllm/a.py": SOURCE.encode(), "vllm/b.py": b"B = 1\n"})


def change(name: str, old: str, new: str, *, context: int = 1, **more: object) -> Mod:
    patch = diff_of("vllm/a.py", SOURCE, SOURCE.replace(old, new), context=context)
    return mod(variant(patch), name=name, **more)


def meet(*mods: Mod) -> tuple[tuple[str, str], ...]:
    answers = {one.name: answer_of(planner.plan([one], TREE).mods[0]) for one in mods}
    return pairs.meeting(mods, answers)


def judge(one: Mod, other: Mod) -> PairAnswer:
    return pairs.judge(one, other, (one, other), TREE, SummaryCache())


FIRST = change("first", "second = 2", "second = 22")


def test_mods_of_different_files_do_not_meet() -> None:
    elsewhere = mod(variant(diff_of("vllm/b.py", "B = 1\n", "B = 2\n")), name="elsewhere")
    assert meet(FIRST, elsewhere) == ()


def test_mods_of_one_function_in_either_order() -> None:
    other = change("other", "seventh = 7", "seventh = 77")
    assert meet(FIRST, other) == (("first", "other"),)
    found = judge(FIRST, other)
    assert found.kind == "same-scope"
    assert found.scopes == ("vllm/a.py: Loader.load",)
    assert "either order gives the same bytes" in found.message


def test_mods_of_two_functions_of_one_file() -> None:
    found = judge(FIRST, change("other", "tenth = 10", "tenth = 100"))
    assert (found.kind, found.scopes) == ("apart", ())


def test_mods_that_want_the_same_line() -> None:
    found = judge(FIRST, change("other", "second = 2", "second = 33"))
    assert found.kind == "conflict"
    assert "first and other do not go together: other is then `conflict`" in found.message


def test_mods_of_which_one_has_to_come_first() -> None:
    # its context is what the other one leaves alone only once it is in
    added = "second = 2\n        extra = first"
    both = SOURCE.replace("second = 2", added)
    needs = diff_of("vllm/a.py", both, both.replace("extra = first", "extra = 1"), context=1)
    found = judge(change("other", "second = 2", added), mod(variant(needs), name="needs"))
    assert found.kind == "order-matters"
    assert found.message.startswith("only other before needs: needs is then `conflict`")


def test_mods_that_insert_at_the_same_place() -> None:
    one, other = (
        change(name, "second = 2", f"second = 2\n        {name} = 0") for name in ("one", "other")
    )
    assert judge(one, other).kind == "conflict"


def test_a_declared_order_is_the_only_one_that_counts() -> None:
    found = judge(FIRST, change("other", "seventh = 7", "seventh = 77", after=("first",)))
    assert found.kind == "same-scope"
    assert "first before other as their manifests say" in found.message


def test_what_a_manifest_excludes_is_not_planned() -> None:
    found = judge(FIRST, change("other", "tenth = 10", "tenth = 100", conflicts=("first",)))
    assert found.kind == "conflict"
    assert "names the other in `conflicts`" in found.message


def test_trees_on_which_two_get_on_alike_share_a_row() -> None:
    fine = PairAnswer("same-scope", ("vllm/a.py: f",), "fine")
    bad = PairAnswer("conflict", (), "bad")
    found = pairs.gather(
        [(("a", "b"), "pypi:1", fine), (("a", "b"), "pypi:2", bad), (("a", "b"), "pypi:3", fine)]
    )
    assert found == (
        Together(("a", "b"), "same-scope", ("vllm/a.py: f",), ("pypi:1", "pypi:3"), "fine"),
        Together(("a", "b"), "conflict", (), ("pypi:2",), "bad"),
    )
