"""A template held against its own words and against conversations: each finding, and none too many."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_mods.base.errors import ManifestError
from vllm_mods.templates import source
from vllm_mods.templates.check import TemplateChecked, check
from vllm_mods.templates.conversation import Conversation, Expected
from vllm_mods.templates.source import Template

TOML = """\
schema = 1
name = "small"
version = "1"
summary = "A small one"
license = "MIT"
content_format = "string"
tool_call_parser = "hermes"

[kwargs.loud]
type = "boolean"
default = false
"""
TEXT = (
    "{% for m in messages %}{{ m.content|upper if loud else m.content }}"
    "{{ '.' if m.role == 'assistant' }}\n{% endfor %}"
)
HELLO = Conversation("hello", ({"role": "user", "content": "hi"},))


def _check(text: str = TEXT, toml: str | None = TOML, **expect: Any) -> TemplateChecked:
    said = source.parse_about(toml.encode(), "t.toml") if toml is not None else None
    template = Template("small", "small/template.jinja", text.encode(), said)
    return check(template, (HELLO._replace(expect=Expected(**expect)),))


def _codes(found: TemplateChecked) -> list[str]:
    (outcome,) = found.outcomes
    every = (*found.findings, *outcome.findings)
    return [one.code for one in every if one.code != "no-tools"]


@pytest.mark.parametrize(
    "expect", [{"rendered": "hi\n"}, {"contains": ("h", "i")}, {"absent": ("HI",)}]
)
def test_what_is_as_it_should_be_has_no_findings(expect: dict[str, Any]) -> None:
    found = _check(**expect)
    assert _codes(found) == []
    assert found.ok


@pytest.mark.parametrize(
    ("expect", "code", "message"),
    [
        ({"rendered": "hi\nho\n"}, "prompt-differs", "line 2 of the prompt is '', and not 'ho'"),
        ({"rendered": "hi"}, "prompt-differs", "line 2 of the prompt is '', and not its end"),
        ({"contains": ("ho",)}, "text-missing", "'ho' is not in the prompt"),
        ({"absent": ("hi",)}, "text-present", "'hi' is in the prompt"),
        ({"error": "no"}, "rendered", "there is a prompt, and not the error 'no'"),
    ],
)
def test_what_is_not_as_it_should_be(expect: dict[str, Any], code: str, message: str) -> None:
    found = _check(**expect)
    ((finding,),) = [outcome.findings for outcome in found.outcomes]
    assert (finding.code, finding.message) == (code, message)
    assert not found.ok


def test_an_error_has_its_line_and_one_that_is_expected_is_right() -> None:
    text = TEXT + "\n{{ raise_exception('no user') if messages[0].content == 'hi' }}"
    assert _check(text, error="no user").ok
    ((finding,),) = [one.findings for one in _check(text, error="no tools").outcomes]
    assert (finding.code, finding.line) == ("not-rendered", 3)
    assert finding.message == "no user, and not 'no tools'"


def test_a_format_that_a_release_takes_it_for_and_that_it_is_not() -> None:
    text = TEXT + "{% for content in [] %}{% for c in content %}{% endfor %}{% endfor %}"
    found = _check(text, rendered="hi\n")
    assert _codes(found) == ["content-format"]
    assert "'openai' from 0.22 on" in found.findings[0].message


def test_an_argument_that_nothing_reads() -> None:
    assert _codes(_check("{{ messages[0].content }}", rendered="hi")) == ["kwarg-unread"]


def test_a_default_that_is_none() -> None:
    found = _check(TEXT.replace("loud", "loud is not false"), rendered="HI\n")
    assert _codes(found) == ["kwarg-default"]
    assert "with it, hello: the prompt is another one" in found.findings[0].message


def test_what_is_no_template_is_a_finding() -> None:
    found = _check("{% if %}")
    assert [one.code for one in found.findings] == ["template-unreadable"]
    assert not found.ok


# ---- template.toml -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schema = 1", "schema = 2", "reads schema 1, not 2"),
        ('content_format = "string"', "", "content_format: is required"),
        ('"string"', '"parts"', "expected one of string, openai"),
        ('name = "small"', 'name = "Small"', "name: expected lower case"),
        ("default = false", "", "kwargs.loud.default: is required"),
        ("tool_call_parser", "tool_cal_parser", "unknown key; did you mean 'tool_call_parser'"),
        ('type = "boolean"', 'type = "bool"', "kwargs.loud.type: expected one of boolean"),
    ],
)
def test_what_is_wrong_with_it_is_said(old: str, new: str, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        source.parse_about(TOML.replace(old, new, 1).encode(), "t.toml")
