"""What a change of vLLM does to mods, in each form, whatever is in it."""

from __future__ import annotations

import json
import re

import pytest
from matrix_making import EVIL, cell

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.matrices.against import AffectedMod, AgainstResult, Edit, Effect, compare
from vllm_mods.report.against import FORMS, text

HARM = f"{EVIL}\r~~~~"
NOTHING = AgainstResult("a", "b", (), (), ())


def hostile() -> AgainstResult:
    finding = Finding(FindingCode.TEXT, HARM, HARM, 1, 1, HARM)
    bad = cell(HARM, HARM, "conflict", tree=HARM, variant=HARM, findings=(finding,))
    edit = Edit(HARM, HARM, 3, (HARM,), (HARM,), (HARM,))
    affected = tuple(AffectedMod(effect, bad, bad, (edit,)) for effect in Effect)
    return AgainstResult(HARM, HARM, affected, (HARM,), (HARM,))


@pytest.mark.parametrize("form", FORMS)
def test_no_harm_comes_out(form: str) -> None:
    written = FORMS[form](hostile())
    assert written.endswith("\n")
    written.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f]", written)
    if form in {"json", "sarif"}:
        json.loads(written)


def test_nothing_ends_the_block_of_markdown() -> None:
    lines = FORMS["markdown"](hostile()).splitlines()
    assert [line for line in lines if re.match(" {0,3}~~~~", line)] == ["~~~~text", "~~~~"]


@pytest.mark.parametrize("form", FORMS)
def test_what_nothing_was_asked_of(form: str) -> None:
    assert FORMS[form](NOTHING).endswith("\n")
    assert text(NOTHING) == "a to b\n\nNothing breaks for 0 mods.\n"
    assert text(NOTHING._replace(unwanted=("x",))) == "a to b\n\n1 mod not meant for b.\n"


def test_a_verdict_is_coloured() -> None:
    one = AffectedMod(Effect.WORSE, cell(), cell(verdict="conflict"))
    result = NOTHING._replace(affected=(one,))
    assert "mod 1.0.0: <applies>, then <conflict>" in text(result, lambda verdict: f"<{verdict}>")
    away = cell(verdict="unreadable", computed=False)
    untold = result._replace(affected=(one._replace(effect=Effect.UNTOLD, after=away),))
    assert "mod 1.0.0: applies, then unknown" in text(untold)


def test_many_commits_are_counted() -> None:
    edit = Edit("hunk 1 of x", "vllm/a.py", 1, (), (), ("one", "two", "three", "four"))
    result = NOTHING._replace(affected=(AffectedMod(Effect.BETTER, cell(), cell(), (edit,)),))
    assert (
        "commit 4 commits changed this file; `vllm-mods bisect` finds the commit that matters"
        in text(result)
    )
    assert "four" not in text(result)


def test_cells_are_compared_mod_by_mod() -> None:
    assert compare("a", "b", (), ()) == NOTHING
