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
        failure_mode=3,
    )


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"messages": [], "expect": {"error": "e"}}, "messages: is required"),
        ({"messages": [{"content": "a"}], "expect": {"error": "e"}}, r"messages\[0\]: has no `role`"),
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


@pytest.mark.parametrize(
    ("raw", "problems"),
    [
        ({"messages": [USER], "expect": 3}, ("expect: expected a table, found an integer",)),
        ({"expect": {"error": "e"}}, ("messages: is required",)),
        (
            {"messages": [USER], "expect": {"error": "e"}, "failure_mode": "x", "title": 3},
            (
                "title: expected a string, found an integer",
                "failure_mode: expected an integer, found a string",
            ),
        ),
        (
            {"messages": [{"role": 3}], "tools": [1], "kwargs": [1], "expect": {"absent": ["a"]}},
            (
                "messages[0]: has no `role`, which is text",
                "tools[0]: expected a table, found an integer",
                "kwargs: expected a table, found an array",
            ),
        ),
    ],
)
def test_every_problem_is_said(raw: dict[str, Any], problems: tuple[str, ...]) -> None:
    with pytest.raises(ManifestError) as caught:
        _parse(**raw)
    assert (caught.value.where, caught.value.problems) == ("c/one.json", problems)


def test_what_is_expected_is_read_and_what_is_not_said_is_plain() -> None:
    expect = {"rendered": "r", "contains": ["c"], "absent": ["a"], "error": "e"}
    assert _parse(messages=[USER], expect=expect) == conversation.Conversation(
        "one", (USER,), None, {}, True, "", Expected("r", ("c",), ("a",), "e")
    )


def test_arguments_of_a_request_by_either_name_and_nothing_else() -> None:
    body = {
        "messages": [USER],
        "kwargs": {"a": 1, "b": 1},
        "chat_template_kwargs": {"b": 2},
        "continue_final_message": False,
    }
    read = conversation.request(json.dumps(body).encode(), "-")
    assert read.kwargs == {"a": 1, "b": 2, "continue_final_message": False}
    assert (read.name, read.add_generation_prompt, read.tools) == ("-", True, None)
    assert conversation.request(json.dumps({"messages": [USER]}).encode(), "-").kwargs == {}
    wrong: tuple[object, ...] = ({}, [], {"messages": [USER], "continue_final_message": "x"})
    for raw in wrong:
        with pytest.raises(ManifestError):
            conversation.request(json.dumps(raw).encode(), "-")
