"""The conversations that every template is asked for, and what they are made of."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from vllm_mods.templates.replay import SCENES, assistant_message, scenes, tool, tool_call

if TYPE_CHECKING:
    from vllm_mods.templates.conversation import Conversation, Message


def _texts(message: Message) -> list[str]:
    calls = [one["function"]["arguments"]["word"] for one in message.get("tool_calls", ())]
    return [one for one in (message["content"], message.get("reasoning", ""), *calls) if one]


def test_messages_tools_and_calls_are_as_vllm_hands_them_over() -> None:
    assert assistant_message("a") == {"role": "assistant", "content": "a"}
    call = tool_call(7, "f", {"x": 1})
    assert call == {
        "id": "call00007",
        "type": "function",
        "function": {"name": "f", "arguments": {"x": 1}},
    }
    assert assistant_message("", "r", call) == {
        "role": "assistant",
        "content": "",
        "reasoning": "r",
        "reasoning_content": "r",
        "tool_calls": [call],
    }
    assert assistant_message("", "")["reasoning_content"] == ""
    assert tool("f", x="string", y="integer") == {
        "type": "function",
        "function": {
            "name": "f",
            "description": "Does it.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "string"}, "y": {"type": "integer"}},
            },
        },
    }


@pytest.mark.parametrize("scene", SCENES, ids=lambda one: one.name)
def test_no_text_of_a_conversation_is_in_another_one(scene: Conversation) -> None:
    """What is lost could not be told from what is there."""
    texts = [text for message in scene.messages for text in _texts(message)]
    if scene.name != "long-chat":
        assert not [(one, other) for one, other in permutations(texts, 2) if one in other]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("scene", SCENES, ids=lambda one: one.name)
def test_each_call_has_its_result_and_the_user_speaks_last(scene: Conversation) -> None:
    calls, results = [], []
    for message in scene.messages:
        calls += [(one["id"], one["function"]["name"]) for one in message.get("tool_calls", ())]
        if message["role"] == "tool":
            results.append((message["tool_call_id"], message["name"]))
    assert calls == results
    assert bool(calls) == bool(scene.tools)
    names = {one["function"]["name"] for one in scene.tools or ()}
    assert {name for _, name in calls} == names
    assert scene.messages[-1]["role"] == "user"
    assert scene.add_generation_prompt


def test_each_conversation_has_what_it_is_named_for() -> None:
    def having(key: str) -> set[str]:
        return {one.name for one in SCENES if any(message.get(key) for message in one.messages)}

    with_calls = {"agent", "agent-that-reasons", "parallel-calls", "text-beside-a-call"}
    assert having("tool_calls") == with_calls
    assert having("reasoning") == {"agent-that-reasons", "chat-that-reasons"}
    assert having("reasoning") == having("reasoning_content")
    by_name = {one.name: one.messages for one in SCENES}
    beside = {
        name
        for name, messages in by_name.items()
        if any("tool_calls" in message and message["content"] for message in messages)
    }
    assert beside == {"text-beside-a-call"}
    several = {
        name
        for name, messages in by_name.items()
        if any(len(message.get("tool_calls", ())) > 1 for message in messages)
    }
    assert several == {"parallel-calls"}
    systems = {
        name: [n for n, message in enumerate(messages) if message["role"] == "system"]
        for name, messages in by_name.items()
    }
    assert {name: at for name, at in systems.items() if at} == {
        "system-message": [0],
        "system-message-midway": [2],
    }
    assert {one.name: one.kwargs for one in SCENES if one.kwargs} == {
        "thinking-off": {"enable_thinking": False}
    }


def test_reasoning_is_the_same_conversation_but_for_what_was_thought() -> None:
    by_name = {one.name: one.messages for one in SCENES}
    without = [
        {key: value for key, value in message.items() if not key.startswith("reasoning")}
        for message in by_name["agent-that-reasons"]
    ]
    assert without == list(by_name["agent"])
    answers = [one for one in by_name["agent-that-reasons"] if one["role"] == "assistant"]
    assert all(one["reasoning"] for one in answers)


def test_parts_are_text_and_nothing_stays_nothing() -> None:
    by_name = {one.name: one.messages for one in scenes(("tools",), "openai", b"reasoning")}
    assert by_name["agent"][0] == {
        "role": "user",
        "content": [{"type": "text", "text": "What is an abacus?"}],
    }
    assert {one["content"] for one in by_name["agent"] if "tool_calls" in one} == {""}
