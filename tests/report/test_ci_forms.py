"""The forms for a CI: what is hostile in a path or a message ends no command and breaks no document."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mods.base.model import Level
from vllm_mods.report.ci_forms import Remark, Reported, render

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "a%0Ab,line=9::x\r\n::error::owned\x00\x1b]0;t\x07\u2028\udcff\ud800<&\"']]>"
LEVELS = {"error": "error", "note": "notice"}


def subject(text: str, level: Level = Level.ERROR) -> Reported:
    return Reported(text, text, (Remark("odd-code", text, level, 3),))


def unescaped(text: str) -> str:
    return re.sub("%([0-9A-F]{2})", lambda one: chr(int(one[1], 16)), text)


@pytest.mark.parametrize("level", Level)
def test_a_workflow_command_is_one_line_whatever_is_in_it(level: Level) -> None:
    text = render("github", "lint", [subject(HOSTILE, level)])
    line, rest = text.split("\n")
    assert not rest
    assert len(text.splitlines()) == 1
    _, command, message = line.split("::", 2)
    kind, properties = command.split(" ", 1)
    assert kind == LEVELS[level.value]
    given_ = dict(one.split("=", 1) for one in properties.split(","))
    assert given_.keys() == {"file", "line", "title"}
    assert given_["line"] == "3"
    assert ":" not in given_["file"]
    assert "a%0Ab,line=9::x\r\n::error::owned" in unescaped(given_["file"])
    assert unescaped(message).startswith("a%0Ab,line=9::x\r\n::error::owned")


@given(st.text(min_size=1), st.sampled_from(Level))
def test_whatever_is_said_can_be_read_back(text: str, level: Level) -> None:
    judged = [subject(text, level)]
    assert render("github", "check", judged).count("\n") == 1
    assert json.loads(render("sarif", "check", judged))["runs"][0]["results"]
    case = ET.fromstring(render("junit", "check", judged)).find(".//testcase")  # noqa: S314
    assert case is not None
    assert (case.find("failure") is not None) == (level is Level.ERROR)


def test_control_characters_leave_the_xml_well_formed() -> None:
    root = ET.fromstring(render("junit", "lint", [subject(HOSTILE), Reported("b", "b", ())]))  # noqa: S314
    (suite,) = root
    assert suite.attrib == {
        "name": "lint", "tests": "2", "failures": "1", "errors": "0", "skipped": "0",
    }  # fmt: skip
    (failure,) = root.iter("failure")
    assert failure.get("type") == "odd-code"
    assert failure.text is not None
    assert "owned\ufffd\ufffd]0;t\ufffd" in failure.text


def held(log: Any) -> None:
    """Hold a log against what SARIF 2.1.0 requires of the properties that are here, and their types (section 3)."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert isinstance(driver["name"], str)
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for result in run["results"]:
        assert result["level"] in {"none", "note", "warning", "error"}
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["message"]["text"]
        result["message"]["text"].encode()  # no half of a surrogate pair
        for location in result["locations"]:
            physical = location["physicalLocation"]
            uri = physical["artifactLocation"]["uri"]
            # RFC 3986: a path, or a `file` one; a colon in its first part would be a scheme
            assert re.fullmatch(
                r"(file:///)?(?!/)([\w.~!$&'()*+,;=@/-]|%[0-9A-F]{2})+", uri, re.ASCII
            )
            assert physical.get("region", {"startLine": 1})["startLine"] >= 1


def test_sarif_has_what_its_standard_requires(tmp_path: Path) -> None:
    name = "x y:z%\udcff.sh"
    judged = [
        subject(name),
        subject(str(tmp_path / "a b")),
        Reported("c", "c", ()),
        subject(HOSTILE.replace("\0", ""), Level.NOTE),
    ]
    judged[-1] = judged[-1]._replace(path="z")
    log = json.loads(render("sarif", "lint", judged))
    held(log)
    first, second, third = log["runs"][0]["results"]
    place = first["locations"][0]["physicalLocation"]
    assert unquote_to_bytes(place["artifactLocation"]["uri"]) == b"x y:z%\xff.sh"
    assert place["region"] == {"startLine": 3}
    assert (
        second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        == f"file://{tmp_path}/a%20b"
    )
    assert (first["level"], third["level"]) == ("error", "note")
    assert [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]] == ["odd-code"]


def test_where_nothing_was_found_nothing_is_said() -> None:
    clean = [Reported("a", "a", ())]
    assert render("github", "lint", clean) == ""
    log = json.loads(render("sarif", "lint", clean))
    held(log)
    assert log["runs"][0]["results"] == []
