"""How mods get on with each other: their order, what they need, and what they exclude."""

from __future__ import annotations

from typing import Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import codes, found

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod, Plan, Verdict
from vllm_mods.formats.receipt import FileHash, Receipt, ReceiptMod
from vllm_mods.planning.planner import plan

NAMES = "abcde"
FILES = {f"vllm/{name}.py": b"v = 1\n" for name in NAMES}


def of(name: str, *, before: str = "v = 1\n", **more: Any) -> Mod:
    """Return a mod of a file of its own, which goes in unless ``before`` is not what is there."""
    return mod(variant(diff_of(f"vllm/{name}.py", before, "v = 2\n")), name=name, **more)


def asked(*mods: Mod, receipt: Receipt | None = None, **files: bytes) -> Plan:
    there = FILES | {f"vllm/{name}.py": data for name, data in files.items()}
    return plan(mods, MemoryTree(there), receipt=receipt)


def order(*mods: Mod) -> str:
    return "".join(one.mod.name for one in asked(*mods).mods)


def holding(*mods: Mod) -> Receipt:
    """Return a receipt that says these mods are in."""
    rows = (ReceiptMod(one.name, "1", one.digest, "one", "applies", ()) for one in mods)
    return Receipt("0.19.1", tuple(rows), ())


@pytest.mark.slow
def test_mods_go_in_as_they_were_given() -> None:
    assert order(of("c"), of("a"), of("b")) == "cab"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["requires", "after"])
def test_a_mod_follows_what_it_requires_and_what_it_is_after(key: str) -> None:
    def waits(name: str, *others: str) -> Mod:
        more: dict[str, Any] = {key: others}
        return of(name, **more)

    assert order(waits("a", "c"), of("b"), of("c")) == "cab"
    assert order(waits("d", "a", "b"), waits("a", "c"), waits("b", "c"), of("c")) == "cabd"


def test_after_a_mod_that_nobody_asked_for_asks_for_nothing() -> None:
    planned = asked(of("a", after=("nobody",)))
    assert planned.ok


def test_a_circle_is_named_without_what_only_leads_to_it() -> None:
    mods = (of("a", after=("b",)), of("b", requires=("c",)), of("c", after=("b",)))
    with pytest.raises(UsageError, match=r"cycle: (b → c → b|c → b → c)$") as caught:
        asked(*mods)
    assert caught.value.hint is not None
    assert "`requires` or `after`" in caught.value.hint


def test_a_mod_whose_requirement_was_not_asked_for_and_is_not_in_does_not_go_in() -> None:
    (one,) = asked(of("a", requires=("b",))).mods
    assert (one.verdict, one.variant, one.in_range) == (Verdict.CONFLICT, None, False)
    assert found(one, "required-mod").message == "a requires b, which is not applied"


def test_what_the_receipt_says_is_in_need_not_be_asked_for() -> None:
    assert asked(of("a", requires=("b",)), receipt=holding(of("b"))).ok


def test_a_requirement_that_does_not_go_in_is_named_with_its_verdict() -> None:
    planned = asked(of("a", requires=("b",)), of("b", before="v = 0\n"))
    assert [one.verdict for one in planned.mods] == [Verdict.CONFLICT] * 2
    message = found(planned.mods[1], "required-mod").message
    assert message == "a requires b, which does not apply (`conflict`)"
    assert planned.changes == ()


def test_a_requirement_that_the_tree_has_already_is_met() -> None:
    planned = asked(of("a", requires=("b",)), of("b"), b=b"v = 2\n")
    assert [one.verdict for one in planned.mods] == [Verdict.APPLIED, Verdict.APPLIES]


def test_a_mod_that_does_not_go_in_leaves_the_others_as_they_would_be_without_it() -> None:
    planned = asked(of("a", before="v = 0\n"), of("b"))
    assert [one.verdict for one in planned.mods] == [Verdict.CONFLICT, Verdict.APPLIES]
    assert [change.path for change in planned.changes] == ["vllm/b.py"]
    assert not planned.ok


@pytest.mark.parametrize("who", ["a", "b"])
def test_mods_exclude_each_other_whichever_of_them_says_so(who: str) -> None:
    mods = [of(name, conflicts=tuple({"a", "b"} - {name} if name == who else ())) for name in "ab"]
    for one, other in zip(asked(*mods).mods, "ba", strict=True):
        assert one.verdict is Verdict.CONFLICT
        assert other in found(one, "conflicting-mod").message


def test_a_mod_does_not_exclude_itself_or_one_that_is_not_there() -> None:
    assert asked(of("a", conflicts=("a", "nobody")), of("b")).ok


def test_a_mod_does_not_go_in_beside_one_that_is_in_and_excluded() -> None:
    receipt = holding(of("b"))
    (one,) = asked(of("a", conflicts=("b",)), receipt=receipt).mods
    assert one.verdict is Verdict.CONFLICT
    assert found(one, "conflicting-mod").message == "a cannot be combined with b, which is applied"
    both = asked(of("a", conflicts=("b",)), of("b"), receipt=receipt)
    assert found(both.mods[0], "conflicting-mod")  # told once, of both that were asked for


def test_a_mod_that_is_in_is_not_held_to_what_it_requires() -> None:
    (one,) = asked(of("a", requires=("b",)), a=b"v = 2\n").mods
    assert one.verdict is Verdict.APPLIED


def test_a_change_that_another_mod_has_made_is_said_to_be_its() -> None:
    entry = ReceiptMod("c", "1", "0" * 64, "one", "applies", (FileHash("vllm/a.py", None, None),))
    (one,) = asked(of("a"), receipt=Receipt("0.19.1", (entry,), ()), a=b"v = 2\n").mods
    assert one.verdict is Verdict.APPLIED
    assert "perhaps from c" in found(one, "no-receipt").message


def test_every_objection_is_told() -> None:
    (one,) = asked(of("a", requires=("b", "c"), conflicts=("d",)), receipt=holding(of("d"))).mods
    assert codes(one) == {"required-mod", "conflicting-mod"}
    assert len(one.findings) == 3


def test_two_mods_of_the_same_lines_are_told_of_each_other() -> None:
    lines = "".join(f"v{n} = 1\n" for n in range(9))
    path, mods = "vllm/a.py", []
    for name in "ab":
        patch = diff_of(path, lines, lines.replace("v4 = 1\n", f"# {name}\nv4 = 1\n"))
        mods.append(mod(variant(patch), name=name))
    first, second = plan(mods, MemoryTree({path: lines.encode()})).mods
    assert first.verdict is Verdict.APPLIES
    assert second.verdict is Verdict.CONFLICT
    assert "a, which is applied first," in found(second, "conflicting-mod").message
    assert codes(second) == {"conflicting-mod"}
