"""``optional`` patches of a variant: each has its own verdict, and the mod goes in without those that do not."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod
from small_plans import PATH, after, one, tree

from vllm_mods.base.model import ModPlan, PatchFile, Variant, Verdict

TEXT = "def f():\n    a = 1\n\n\ndef g():\n    b = 2\n\n\ndef h():\n    c = 3\n"


def patch(old: str, new: str, *, optional: bool = False) -> PatchFile:
    data = diff_of(PATH, TEXT, TEXT.replace(old, new), context=1)
    return PatchFile(source=f"v/{old[0]}.patch", data=data, optional=optional)


A, B, C = (patch(f"{name} = {i}", f"{name} = 9") for i, name in enumerate("abc", 1))
FREE_A, FREE_B, FREE_C = (one._replace(optional=True) for one in (A, B, C))


def planned(text: str, *patches: PatchFile, pristine: bool = False) -> ModPlan:
    variant = Variant(id="v", vllm=">=0", patches=patches)
    on = tree(text)
    if pristine:
        on = MemoryTree({path: on.read(path) or b"" for path in on.paths("vllm")}, pristine=True)
    return one(mod(variant), on)


def optional(plan: ModPlan) -> list[tuple[str, str]]:
    return [(one.patch, one.verdict.value) for one in plan.optional]


def test_all_of_them_go_in_where_they_do() -> None:
    plan = planned(TEXT, A, FREE_B)
    assert plan.verdict is Verdict.APPLIES
    assert after(plan) == TEXT.replace("a = 1", "a = 9").replace("b = 2", "b = 9")
    assert optional(plan) == [("v/b.patch", "applies")]


def test_the_mod_goes_in_without_one_that_does_not_and_says_so() -> None:
    plan = planned(TEXT.replace("b = 2", "b = 5"), A, FREE_B, C)
    assert plan.verdict is Verdict.APPLIES
    assert after(plan) == TEXT.replace("a = 1", "a = 9").replace("b = 2", "b = 5").replace(
        "c = 3", "c = 9"
    )
    assert optional(plan) == [("v/b.patch", "conflict")]
    (said,) = [one for one in plan.findings if one.code == "optional"]
    assert said.level == "note"
    assert "v/b.patch is optional and was left out (conflict)" in said.message


def test_one_that_is_required_still_decides() -> None:
    plan = planned(TEXT.replace("a = 1", "a = 5"), A, FREE_B)
    assert plan.verdict is Verdict.CONFLICT
    assert not plan.changes


def test_of_optional_ones_alone_one_has_to_go_in() -> None:
    neither = TEXT.replace("a = 1", "a = 5").replace("b = 2", "b = 5")
    assert planned(neither, FREE_A, FREE_B).verdict is Verdict.CONFLICT
    plan = planned(TEXT.replace("a = 1", "a = 5"), FREE_A, FREE_B)
    assert plan.verdict is Verdict.APPLIES
    assert optional(plan) == [("v/a.patch", "conflict"), ("v/b.patch", "applies")]


@pytest.mark.parametrize(("pristine", "word"), [(False, "applied"), (True, "upstream")])
def test_what_upstream_took_does_not_keep_the_other_out(*, pristine: bool, word: str) -> None:
    plan = planned(TEXT.replace("a = 1", "a = 9"), FREE_A, FREE_B, pristine=pristine)
    assert plan.verdict is Verdict.APPLIES
    assert after(plan) == TEXT.replace("a = 1", "a = 9").replace("b = 2", "b = 9")
    assert optional(plan) == [("v/a.patch", word), ("v/b.patch", "applies")]


@pytest.mark.parametrize("took", ["b = 9", "b = 5"])
def test_what_was_put_in_is_seen_again_with_them_and_without(took: str) -> None:
    there = TEXT.replace("b = 2", took if took == "b = 5" else "b = 2")
    done = after(planned(there, A, FREE_B))
    assert planned(done, A, FREE_B).verdict is Verdict.APPLIED
