"""Remarks for GitHub: what is hostile in a path or a message ends no command."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from memory_tree import MemoryTree
from small_replies import NOTE, TEXT, plan, planned

from vllm_mods.api.plan import CheckResult
from vllm_mods.base.model import Level
from vllm_mods.checkpoints.model_fit import ModelFit, ModFit
from vllm_mods.report import sarif
from vllm_mods.report.annotations import Remark, of_check, workflow_commands

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "a%0Ab,line=9::x\r\n::error::owned\x00\x1b]0;t\x07\u2028\udcff\ud800<&\"']]>"
KINDS = {"error": "error", "note": "notice"}


def unescaped(text: str) -> str:
    return re.sub("%([0-9A-F]{2})", lambda one: chr(int(one[1], 16)), text)


@pytest.mark.parametrize("level", Level)
def test_a_workflow_command_is_one_line_whatever_is_in_it(level: Level) -> None:
    text = workflow_commands([Remark(level, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 7)])
    line, rest = text.split("\n")
    assert not rest
    assert len(text.splitlines()) == 1
    _, command, message = line.split("::", 2)
    kind, properties = command.split(" ", 1)
    assert kind == KINDS[level.value]
    given_ = dict(one.split("=", 1) for one in properties.split(","))
    assert given_.keys() == {"file", "line", "title"}
    assert given_["line"] == "7"
    assert ":" not in given_["file"]
    assert "a%0Ab,line=9::x\r\n::error::owned" in unescaped(given_["file"])
    assert unescaped(message).startswith("a%0Ab,line=9::x\r\n::error::owned")


@given(st.text(min_size=1), st.sampled_from(Level))
def test_whatever_is_said_is_one_line(text: str, level: Level) -> None:
    assert workflow_commands([Remark(level, "a", text, text, text)], text).count("\n") == 2


def test_a_check_is_a_remark_for_the_verdict_one_for_each_finding_and_one_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bad = planned("conflict", findings=(TEXT, NOTE._replace(line=None)))
    mod = bad.mod._replace(directory=str(tmp_path / "patches/fast"))
    fine = planned(findings=(TEXT._replace(path=None, line=None),))
    other = fine.mod._replace(name="other")
    fits = (ModFit("other", False, True, "it is another", ""), ModFit("fast", True, True, "", ""))
    result = CheckResult(
        MemoryTree({}),
        plan(bad._replace(mod=mod), fine._replace(mod=other)),
        ModelFit("m", None, fits),
    )
    place = "file=patches/fast/mod.toml,title=fast 1.0.0%3A"
    elsewhere = "file=/lib/patches/fast/mod.toml,title=other 1.0.0%3A"
    assert workflow_commands(of_check(result)).splitlines() == [
        f"::error {place} conflict::conflict: the source does not match the patch, or another mod excludes this one",
        f"::error {place} text::vllm/x.py:3: hunk 1: not there",
        f"::notice {place} offset::vllm/x.py: hunk 1 lands at line 4, +2",
        f"::notice {elsewhere} text::hunk 1: not there",
        f"::error {elsewhere} model::the mod is not for this model: it is another",
    ]
    assert workflow_commands(of_check(CheckResult(MemoryTree({}), plan(planned())))) == ""


@pytest.mark.parametrize("level", Level)
def test_sarif_holds_whatever_is_in_a_remark(level: Level) -> None:
    remarks = [
        Remark(level, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 7),
        Remark(level, "/x y", "m", "text", "t"),
    ]
    text = sarif.render(remarks)
    text.encode()
    log = json.loads(text)
    assert (log["$schema"].rpartition("/")[2], log["version"]) == ("sarif-2.1.0.json", "2.1.0")
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"] == "vllm-mods"
    first, second = run["results"]
    assert first["level"] == level.value
    assert first["locations"][0]["physicalLocation"]["region"] == {"startLine": 7}
    assert second["message"]["text"] == "m: t"
    place = second["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "file:///x%20y"}}
    rules = {
        rule["id"]: rule["shortDescription"]["text"] for rule in run["tool"]["driver"]["rules"]
    }
    assert rules.keys() == {first["ruleId"], "text"}
    assert rules["text"] != "text"


def test_sarif_without_a_remark_is_a_run_that_found_nothing() -> None:
    assert json.loads(sarif.render([]))["runs"][0]["results"] == []
