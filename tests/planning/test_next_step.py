"""A user who reads only the message knows what to do next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, ModPlan, Plan, Verdict
from vllm_mods.planning import next_step
from vllm_mods.planning.next_step import hint
from vllm_mods.trees import packages

AGAIN = "pip install --force-reinstall --no-deps vllm==0.21.0"
PATCHED = variant(b"", vllm="<0.22,>=0.20")
TREE = "pypi:0.22.0"


def plan(
    verdict: Verdict,
    *codes: str,
    in_range: bool = True,
    version: str | None = "0.22.0",
    spec: str = TREE,
    **more: Any,
) -> Plan:
    found = tuple(Finding(code=FindingCode(code), message="m", path="vllm/a.py") for code in codes)
    one = ModPlan(mod(PATCHED, **more), PATCHED, verdict, in_range=in_range, findings=found)
    return Plan(spec=spec, version=version, mods=(one,), changes=())


@pytest.fixture(autouse=True)
def _known_installer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "reinstalling", lambda _tree, _version: AGAIN)


def told(made: Plan, *, edited: bool = False) -> str | None:
    there = {"vllm/a.py": b"mine\n"} if edited else {}
    return hint(made, MemoryTree(there, released={"vllm/a.py": b"theirs\n"}))


PORT = "vllm-mods port mod --to pypi:0.22.0 --from pypi:0.20 --library /lib"
BASE = (
    "vllm-mods check mod --library /lib --target pypi:0.22.0 --base pypi:0.20"
    "  # the release that the patch was made for"
)
SHOW = "vllm-mods show mod --library /lib"


def test_a_mod_that_is_partly_another_one_is_no_reason_to_install_anew() -> None:
    made = plan(Verdict.PARTIAL, "half-applied")
    assert told(made) == AGAIN
    change = FileChange("vllm/a.py", b"a\n", b"b\n")
    other = ModPlan(mod(name="other"), None, Verdict.APPLIES, in_range=True, changes=(change,))
    both = replace(made, mods=(*made.mods, other))
    assert told(both) == "name mod or other alone: both change the same files"


@pytest.mark.parametrize(
    ("made", "command"),
    [
        (plan(Verdict.CONFLICT, "text"), PORT),
        (plan(Verdict.CONFLICT, "edge"), PORT),
        (plan(Verdict.CONFLICT, "carried"), PORT),
        (plan(Verdict.MISPLACED, "elsewhere"), PORT),
        (plan(Verdict.MISPLACED, "look-alike"), BASE),
        (plan(Verdict.MISPLACED, "ambiguous"), BASE),
        (plan(Verdict.MISSING, "file-gone"), PORT),
        (plan(Verdict.UNSUPPORTED, "no-variant", in_range=False), PORT),
        (plan(Verdict.UNFIT, "fit-import", in_range=False), PORT),
        (plan(Verdict.UNFIT, "fit-import"), SHOW),
        (plan(Verdict.UNSUPPORTED, "two-variants"), SHOW),
        (plan(Verdict.CONFLICT, "required-mod"), SHOW),
        (plan(Verdict.CONFLICT, "text", version=None), SHOW),
        (plan(Verdict.CONFLICT, "other-version"), "vllm-mods revert mod --target pypi:0.22.0"),
        (
            plan(Verdict.PARTIAL, "changed-since"),
            "vllm-mods revert --only-edits --target pypi:0.22.0  # drops the edits, not the mods",
        ),
        (plan(Verdict.PARTIAL, "half-applied"), AGAIN),
        (plan(Verdict.UNREADABLE, "unreadable"), None),
        (
            plan(Verdict.UNREADABLE, "not-in-tree"),
            "vllm-mods check mod --library /lib --target SITE_PACKAGES  # an installation that has the package",
        ),
    ],
)
def test_each_refusal_has_its_next_command(made: Plan, command: str | None) -> None:
    assert told(made) == command


def test_a_mod_that_its_lock_knows_is_ported_from_what_the_lock_says() -> None:
    made = plan(Verdict.CONFLICT, "text", lock=b"x")
    assert told(made) == "vllm-mods port mod --to pypi:0.22.0 --library /lib"
    stale = plan(Verdict.CONFLICT, "text", "stale-lock", lock=b"x")
    assert told(stale) == PORT


def test_a_bundled_mod_is_ported_into_a_folder_of_the_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(next_step, "data_root", lambda: "/lib")
    made = plan(Verdict.CONFLICT, "text", directory="/lib/patches/mod")
    assert told(made) == ("vllm-mods port mod --to pypi:0.22.0 --from pypi:0.20 --output ported")
    shown = plan(Verdict.UNFIT, "fit-import", directory="/lib/patches/mod")
    assert told(shown) == "vllm-mods show mod"


def test_a_file_that_differs_from_record_is_installed_again_and_not_ported_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for verdict, code in ((Verdict.PARTIAL, "half-applied"), (Verdict.CONFLICT, "text")):
        said = told(plan(verdict, code), edited=True)
        assert said == f"{AGAIN}  # vllm/a.py differs from RECORD"
    assert told(plan(Verdict.UNFIT, "fit-import"), edited=True) == SHOW
    mine = "install the very build again"
    monkeypatch.setattr(packages, "reinstalling", lambda _tree, _version: mine)
    said = told(plan(Verdict.PARTIAL, "text"), edited=True)
    assert said == f"vllm/a.py differs from RECORD: {mine}"


def test_what_stands_both_ways_is_told_by_the_line_that_git_diff_writes() -> None:
    said = told(plan(Verdict.MISPLACED, "both-ways"))
    assert said is not None
    assert "`git diff`" in said
    assert "`index` line" in said


def test_of_several_mods_the_one_that_the_others_wait_for_is_told_of() -> None:
    (first,) = plan(Verdict.CONFLICT, "required-mod").mods
    (second,) = plan(Verdict.CONFLICT, "text").mods
    second = second._replace(mod=second.mod._replace(name="needed"))
    made = Plan(spec="/a b", version="0.22.0", mods=(first, second), changes=())
    assert told(made) == "vllm-mods port needed --to '/a b' --from pypi:0.20 --library /lib"


def test_without_a_refusal_there_is_nothing_to_do() -> None:
    assert told(plan(Verdict.APPLIES, "offset")) is None
    assert told(Plan(spec=TREE, version=None, mods=(), changes=())) is None


def test_what_lies_outside_or_beside_is_put_right_by_what_names_it() -> None:
    assert told(plan(Verdict.CONFLICT, "undeclared")) == (
        f"{SHOW}  # read the mod, then declare the change in /lib/patches/mod/mod.toml"
    )
    made = plan(Verdict.UNFIT, "python-conflict")
    (one,) = made.mods
    needs = PATCHED._replace(python=("flash>=1", "other"))
    made = replace(made, mods=(one._replace(variant=needs),))
    assert (
        told(made)
        == "pip install 'flash>=1' other  # in the environment of that vLLM, then try again"
    )
    made = replace(made, mods=(one._replace(variant=None),))
    assert told(made) == SHOW


def test_a_file_that_cannot_be_read_or_is_far_away_is_not_held_to_record() -> None:
    class Broken(MemoryTree):
        def read(self, path: str) -> bytes | None:
            raise TreeError(f"{path} is a link")

    released = {"vllm/a.py": b"theirs\n"}
    made = plan(Verdict.CONFLICT, "text")
    assert hint(made, Broken({}, released=released)) == PORT
    far = MemoryTree({"vllm/a.py": b"mine\n"}, remote=True, released=released)
    assert hint(made, far) == PORT
    for same in (MemoryTree({}, released=released), MemoryTree({"vllm/a.py": b"x"})):
        assert hint(made, same) == PORT


@pytest.mark.parametrize(
    ("vllm", "start"),
    [
        (">=0.20", "0.20"),
        ("<0.22,>=0.20.1", "0.20.1"),
        ("== 0.20.*", "0.20"),
        ("~=0.20,!=0.21", "0.20"),
        ("<0.22", None),
        (">0.20", None),
    ],
)
def test_the_release_that_a_range_begins_with_is_the_base(vllm: str, start: str | None) -> None:
    ranged = PATCHED._replace(vllm=vllm)
    made = plan(Verdict.MISPLACED, "look-alike")
    (one,) = made.mods
    made = replace(made, mods=(one._replace(variant=ranged),))
    target = "vllm-mods check mod --library /lib --target pypi:0.22.0"
    if start is None:
        assert told(made) == "vllm-mods port mod --to pypi:0.22.0 --from TREE --library /lib"
    else:
        assert told(made) == (
            f"{target} --base pypi:{start}  # the release that the patch was made for"
        )
    locked = made.mods[0]._replace(mod=made.mods[0].mod._replace(lock=b"x"))
    assert told(replace(made, mods=(locked,))) == (
        "vllm-mods port mod --to pypi:0.22.0 --library /lib"
    )


def test_what_no_patch_is_of_is_looked_at_and_not_ported() -> None:
    bare = variant(vllm=">=0.20")
    made = plan(Verdict.CONFLICT, "file-there")
    (one,) = made.mods
    assert told(replace(made, mods=(one._replace(variant=bare),))) == SHOW
    nameless = one._replace(variant=None)
    assert told(replace(made, mods=(nameless,))) == (
        "vllm-mods port mod --to pypi:0.22.0 --variant one --from pypi:0.20 --library /lib"
    )
