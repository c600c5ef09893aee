"""Remarks for GitHub: what is hostile in a path or a message ends no command."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mods.base.model import Level
from vllm_mods.report.annotations import workflow_command

HOSTILE = "a%0Ab,line=9::x\r\n::error::owned\x00\x1b]0;t\x07\u2028\udcff\ud800<&\"']]>"
KINDS = {"error": "error", "note": "notice"}


def unescaped(text: str) -> str:
    return re.sub("%([0-9A-F]{2})", lambda one: chr(int(one[1], 16)), text)


@pytest.mark.parametrize("level", Level)
def test_a_workflow_command_is_one_line_whatever_is_in_it(level: Level) -> None:
    text = workflow_command(level, HOSTILE, HOSTILE, HOSTILE)
    line, rest = text.split("\n")
    assert not rest
    assert len(text.splitlines()) == 1
    _, command, message = line.split("::", 2)
    kind, properties = command.split(" ", 1)
    assert kind == KINDS[level.value]
    given_ = dict(one.split("=", 1) for one in properties.split(","))
    assert given_.keys() == {"file", "title"}
    assert ":" not in given_["file"]
    assert "a%0Ab,line=9::x\r\n::error::owned" in unescaped(given_["file"])
    assert unescaped(message).startswith("a%0Ab,line=9::x\r\n::error::owned")


@given(st.text(min_size=1), st.sampled_from(Level))
def test_whatever_is_said_is_one_line(text: str, level: Level) -> None:
    assert workflow_command(level, "a", text, text).count("\n") == 1
