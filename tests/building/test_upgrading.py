"""A pairing for another release: what it is based on then, and what is said where that is not known."""

from __future__ import annotations

import mod_making as making
import pytest

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import ModPlan, Plan, Verdict
from vllm_mods.building import upgrading
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import LockedBase, LockedImage, LockedVllm, PairingLock


def pairing(base: str, vllm: str | None = None) -> Pairing:
    return Pairing(name="p", summary="s", model="m", base=base, command="vllm serve m", vllm=vllm)


def lock(version: str | None) -> PairingLock:
    return PairingLock(
        pairing="p",
        pairing_digest="0",
        model="m",
        revision=None,
        base=LockedBase("b", "c", (), "linux/amd64"),
        vllm=LockedVllm(version, "site", None),
        mods=(),
        templates=(),
        wheels=(),
        command="vllm serve m",
        image=LockedImage({}, ()),
    )


@pytest.mark.parametrize(
    ("base", "version", "to", "moved"),
    [
        ("x:v0.19.1", "0.19.1", "0.22.0", "x:v0.22.0"),
        ("h:5000/x:0.19.1-cu129", "0.19.1+cu129", "0.22.0+cu130", "h:5000/x:0.22.0-cu129"),
        ("x:v0.19.1", "0.19.1", None, "x:v0.19.1"),
    ],
)
def test_a_tag_that_says_the_version_says_the_new_one(
    base: str, version: str, to: str | None, moved: str
) -> None:
    assert upgrading.move_to_release(pairing(base), lock(version), to, None) == pairing(moved)


@pytest.mark.parametrize(
    ("base", "version"),
    [
        ("x:latest", "0.19.1"),
        ("x:10.19.1", "0.19.1"),
        ("x:0.19.12", "0.19.1"),
        ("x:0.19.1.4", "0.19.1"),
        ("x:0.19.1-0.19.1", "0.19.1"),
        ("h:5000/0.19.1", "0.19.1"),
        ("x@sha256:0.19.1", "0.19.1"),
        ("x:0.19.1", None),
    ],
)
def test_a_tag_that_does_not_is_asked_for(base: str, version: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        upgrading.move_to_release(pairing(base), lock(version), "0.22.0", None)
    assert caught.value.message == (
        f"the tag of {base} does not contain its vLLM version {version or '(no version)'}, so "
        "the name of the image for 0.22.0 is unknown"
    )
    assert caught.value.hint == "vllm-mods upgrade p --to 0.22.0 --base REF"
    wanted = pairing(base, "0.22.0")
    given = upgrading.move_to_release(pairing(base, "0.19.1"), lock(version), "0.22.0", "mine:1")
    assert given == wanted


@pytest.mark.parametrize(
    ("vllm", "to", "moved"),
    [
        (None, "0.22.0", None),
        (">=0.19", "0.22.0", ">=0.19"),
        (">=0.19,<0.20", "0.22.0", ">=0.22.0,<0.23"),
        (">=0.19,<0.20", "0.22.0+cu130", ">=0.22.0,<0.23"),
        (">=0.19,<0.20", "1", ">=1,<1.1"),
        ("0.19.1", "0.22.0", "0.22.0"),
        ("0.22.0", "0.22.0", "0.22.0"),
    ],
)
def test_the_range_of_a_pairing_moves_if_it_has_to(
    vllm: str | None, to: str, moved: str | None
) -> None:
    wanted = pairing("x:0.19.1", vllm)
    assert upgrading.move_to_release(wanted, lock("0.19.1"), to, None).vllm == moved


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        upgrading.move_to_release(pairing("x:0.19.1"), lock("0.19.1"), "new", None)
    assert (caught.value.message, caught.value.hint) == ("--to new: not a version", "--to 0.22.0")


@pytest.mark.parametrize(
    ("locked", "to", "version"),
    [("0.19.1", None, "0.19.1"), (None, None, None), ("0.19.1", "0.22.0", "0.22.0+cu129")],
)
def test_a_base_that_has_the_vllm_that_was_asked_for(
    locked: str | None, to: str | None, version: str | None
) -> None:
    upgrading.check_version(pairing("x:1"), lock(locked), to, version)


@pytest.mark.parametrize(
    ("to", "version", "why"),
    [
        (None, "0.22.0", "0.22.0, but its lock has 0.19.1"),
        ("0.22.0", "0.22.1", "0.22.1, but --to says 0.22.0"),
        ("0.22.0", None, "(no version), but --to says 0.22.0"),
    ],
)
def test_a_base_that_has_another_vllm(to: str | None, version: str | None, why: str) -> None:
    with pytest.raises(Refused) as caught:
        upgrading.check_version(pairing("oci:x"), lock("0.19.1"), to, version)
    assert caught.value.message == f"oci:x has vLLM {why}; nothing was changed"
    again = f"vllm-mods upgrade p --to {version} --base oci:x"
    assert caught.value.hint == (again if version else "vllm-mods image inspect oci:x")


def planned(name: str, verdict: Verdict) -> ModPlan:
    return ModPlan(making.mod(name=name), None, verdict, in_range=True)


@pytest.mark.parametrize(("to", "tree"), [("0.22.0", "pypi:0.22.0"), (None, "image:x:1")])
def test_mods_that_do_not_fit_are_ported_first(to: str | None, tree: str) -> None:
    mods = (planned("a", Verdict.CONFLICT), planned("b", Verdict.APPLIES))
    plan = Plan("image:x:1", "0.22.0", (*mods, planned("c", Verdict.CONFLICT)), ())
    with pytest.raises(Refused) as caught, upgrading.naming_ports("p", to):
        raise Refused("no", hint="h", plan=plan)
    assert caught.value.message == "pairing p and its lock are unchanged: no"
    assert caught.value.hint == (
        f"vllm-mods port a --to {tree}\n  vllm-mods port c --to {tree}\n  "
        "then run this command again; `vllm-mods keep` ports a whole library"
    )
    assert caught.value.plan is plan


def test_a_refusal_that_is_of_no_plan_stays_as_it_is() -> None:
    refusal = Refused("no", hint="h")
    with pytest.raises(Refused) as caught, upgrading.naming_ports("p", None):
        raise refusal
    assert caught.value is refusal


def test_base_and_range_are_written_into_the_file_and_nothing_else() -> None:
    text = (
        b'# ours\nschema = 1\nname = "p"\nsummary = "s"\nmodel = "m"\nbase = "x:0.19.1"  # theirs\n'
        b'vllm = "0.19.1"\ncommand = "vllm serve m"\n'
    )
    now = pairing("x:0.22.0", "0.22.0")
    edited = upgrading.edit_pairing(text, "p.toml", now)
    assert edited == text.replace(b"0.19.1", b"0.22.0")
    assert upgrading.edit_pairing(edited, "p.toml", now) == edited
