"""Calls read back from a prompt, strictly."""

from __future__ import annotations

import pytest
import qwen_calls as calls
from qwen_calls import ToolCall

CALL = """\
<tool_call>
<function=f>
<parameter=a>
x
y
</parameter>
<parameter=n>
5
</parameter>
</function>
</tool_call>"""


def _prompt(text: str, role: str = "assistant") -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def test_values_are_text_where_text_is_expected_and_json_elsewhere() -> None:
    like = [ToolCall("f", {"a": "", "n": 0})]
    assert calls.read(_prompt(f"Here.\n\n{CALL}"), like) == (ToolCall("f", {"a": "x\ny", "n": 5}),)
    assert calls.read(_prompt(CALL), ()) == (ToolCall("f", {"a": "x\ny", "n": "5"}),)


def test_several_calls_and_several_turns() -> None:
    none = "<tool_call>\n<function=g>\n</function>\n</tool_call>"
    prompt = _prompt(f"{CALL}\n{none}") + _prompt("r", "user") + _prompt(none)
    assert [call.name for call in calls.read(prompt, ())] == ["f", "g", "g"]


def test_what_others_write_is_no_call() -> None:
    assert calls.read(_prompt(CALL, "user") + _prompt("It is `<tool_call>`."), ()) == ()


def test_an_empty_value_is_one() -> None:
    empty = CALL.replace("x\ny", "").replace("5", "\n")
    assert calls.written(empty) == [("f", {"a": "", "n": "\n"})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CALL.removesuffix("</tool_call>"), "does not begin or does not end"),
        (f"{CALL}\n</tool_call>", "does not begin or does not end"),
        (CALL.replace("</function>\n", ""), "no function"),
        (CALL.replace("</function>", "</function>\nmore"), "no function"),
        (CALL.replace("<parameter=n>", "stray\n<parameter=n>"), "a stray line"),
        (CALL.replace("x\n", "x <function=g>\n"), "a tag within the value of a"),
        (CALL.replace("x\n", "x\n<tool_call>\n"), "a tag within the value of a"),
    ],
)
def test_what_is_no_call_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calls.written(text)


@pytest.mark.parametrize(
    "prompt", ["hi", _prompt("a") + "\nb", "<|im_start|>user\na<|im_start|>user\n"]
)
def test_what_is_no_turn_is_refused(prompt: str) -> None:
    with pytest.raises(ValueError, match="turn"):
        calls.turns(prompt)


def test_a_turn_without_its_end_is_open() -> None:
    (turn,) = calls.turns("<|im_start|>assistant\n<think>\nwhy\n</think>\n\nbecause\n" + CALL)
    assert not turn.closed
