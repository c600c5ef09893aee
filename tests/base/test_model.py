"""How verdicts, findings and plans show themselves."""

from __future__ import annotations

import pytest
from mod_making import diff_of, mod, variant

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, HunkState, Level, ModPlan, Plan, Verdict

MOD = mod(variant(diff_of("vllm/a.py", "A\n", "B\n")))
TEXT = Finding(FindingCode.TEXT, "it is <gone>")


def planned(*verdicts: Verdict, version: str | None = "0.19.1", changes: int = 0) -> Plan:
    mods = tuple(ModPlan(MOD, None, one, in_range=True, findings=(TEXT,)) for one in verdicts)
    return Plan("tree", version, mods, (FileChange("vllm/a.py", b"A\n", b"B\n"),) * changes)


def test_two_verdicts_write_and_two_more_are_in_already() -> None:
    assert {one for one in Verdict if one.writes} == {Verdict.APPLIES, Verdict.MOVED}
    assert {one for one in Verdict if one.ok and not one.writes} == {
        *(Verdict.APPLIED, Verdict.UPSTREAM)
    }


def test_a_finding_is_one_line_and_a_note_is_marked() -> None:
    assert str(TEXT) == "it is <gone> [text]"
    assert str(TEXT._replace(level=Level.NOTE)) == "note: it is <gone> [text]"


def test_a_change_shows_sizes_and_no_bytes() -> None:
    assert repr(FileChange("a", None, b"x" * 1234)) == "FileChange('a', None, 1,234 bytes)"
    assert repr(FileChange("a", b"", None)) == "FileChange('a', 0 bytes, None)"


def test_a_hunk_is_named_by_its_file_and_number() -> None:
    assert HunkState("p", "a.py", 2, "placed").label == "a.py hunk 2"
    assert HunkState("p", "a.py", None, "placed").label == "a.py"


def test_what_a_variant_is_meant_for_names_its_package() -> None:
    assert variant(vllm=">=0.19").meant == ">=0.19"
    assert variant(vllm=">=0.19", package="kernels", package_version="<2").meant == (
        ">=0.19, kernels <2"
    )


def test_a_plan_shows_what_would_change_or_that_it_is_refused() -> None:
    good = planned(Verdict.APPLIES, Verdict.APPLIED, changes=1)
    assert (good.ok, planned().ok) == (True, True)
    assert repr(good) == (
        "<Plan of tree, vLLM 0.19.1: 1 files would change\n  mod 1.0.0: applies\n  mod 1.0.0: applied>"
    )
    bad = planned(Verdict.APPLIES, Verdict.CONFLICT, version=None)
    assert not bad.ok
    assert repr(bad).startswith("<Plan of tree, vLLM of unknown version: refused\n")
    assert repr(bad.mods[1]) == "<ModPlan mod 1.0.0: conflict>"


@pytest.mark.parametrize(
    ("mods", "lines", "end"),
    [(19, 20, "mod 1.0.0: applies>"), (20, 20, "and 2 more>"), (40, 20, "and 22 more>")],
)
def test_a_plan_of_many_mods_fits_a_screen(mods: int, lines: int, end: str) -> None:
    shown = repr(planned(*[Verdict.APPLIES] * mods)).splitlines()
    assert (len(shown), shown[-1].strip()) == (lines, end)
