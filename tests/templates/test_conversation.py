"""Conversations and requests: what is read, and what is said of what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vllm_mods.base.errors import ManifestError
from vllm_mods.templates import conversation
from vllm_mods.templates.conversation import Expected

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}


def _parse(**raw: Any) -> conversation.Conversation:
    return conversation.parse(json.dumps(raw).encode(), "c/one.json", "one")


def test_a_conversation_is_read() -> None:
    found = _parse(
        title="T",
        failure_mode=3,
        messages=[USER],
        tools=[{"name": "f"}],
        kwargs={"x": 1},
        add_generation_prompt=False,
        expect={"contains": ["a"]},
    )
    assert found == conversation.Conversation(
        name="one",
        title="T",
        messages=(USER,),
        tools=({"name": "f"},),
        kwargs={"x": 1},
        add_generation_prompt=False,
        expect=Expected(contains=("a",)),
    )


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"messages": [], "expect": {"error": "e"}}, "messages: there are none"),
        ({"messages": [{"content": "a"}], "expect": {"error": "e"}}, r"messages\[0\].role: is required"),
        ({"messages": ["a"], "expect": {"error": "e"}}, r"messages\[0\]: expected a table"),
        ({"messages": [USER]}, "expect: is empty"),
        ({"messages": [USER], "expect": {"render": "a"}}, "expect.render: unknown key; did you mean"),
        ({"messages": [USER], "expect": {"error": "e"}, "kwarg": {}}, "kwarg: unknown key"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        _parse(**raw)


@pytest.mark.parametrize(
    ("data", "problem"),
    [(b"[", "not JSON"), (b"\xff", "not JSON"), (b"1", "expected an object, found an integer")],
)
def test_what_is_no_json_object_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        conversation.parse(data, "c", "c")
    with pytest.raises(ManifestError, match=problem):
        conversation.request(data, "c")


def test_a_request_is_read_as_vllm_does() -> None:
    body = {
        "model": "m",
        "temperature": 0,
        "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}],
        "tools": [{"type": "function"}],
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": False,
        "continue_final_message": True,
    }
    found = conversation.request(json.dumps(body).encode(), "-")
    assert found.messages[1]["tool_calls"][0]["function"]["arguments"] == {"a": [1]}
    assert found.kwargs == {"enable_thinking": False, "continue_final_message": True}
    assert (found.tools, found.add_generation_prompt) == (({"type": "function"},), False)


def test_a_bare_list_of_messages_is_a_request() -> None:
    assert conversation.request(json.dumps([USER]).encode(), "-").messages == (USER,)


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_arguments_that_are_no_object_stay_text(text: str) -> None:
    call = {"function": {"name": "f", "arguments": text}}
    body = [{"role": "assistant", "tool_calls": [call, {"function": 1}, 2]}]
    assert conversation.request(json.dumps(body).encode(), "-").messages == tuple(body)
