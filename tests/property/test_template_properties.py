"""Chat templates under generated conversations: calls survive, text stays text, caches are found.

The two bundled templates have the same text (a test holds that), so one of them is asked.
"""

from __future__ import annotations

import json
import string
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st
from qwen_calls import turns
from template_env import Message, calls_like, render, render_by_minijinja

NAME = "qwen3.6-enhanced"

# Text with a taste for trouble: tags, quotes, backslashes, blank lines. A short alphabet, since
# Hypothesis takes seconds to set up all of Unicode.
_PIECES = st.one_of(
    st.text("aZ09_-+.,;:'/=#\t é\u0416日\u0301\U0001f44d", max_size=8),
    st.sampled_from(["\n", "\n\n", " ", '"', "\\", '\\"', "{", "}", ":", ",", "\\u0041", "\\n"]),
    st.sampled_from(["第3章", "😀", "\u2028", "null", "<", "</", ">", "<b>", "<|>", "<|"]),
)
_TAGS = st.one_of(
    st.sampled_from(["<|im_end|>", "<|im_start|>", "<|image_pad|>", "<think>", "</think>"]),
    st.sampled_from(["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]),
    st.sampled_from(["<function=f>", "</function>", "<parameter=p>", "</parameter>"]),
)
_TEXT = st.lists(_PIECES, max_size=6).map("".join)
_HOSTILE = st.lists(st.one_of(_PIECES, _TAGS), max_size=6).map("".join)
_PLAIN = st.text(string.ascii_letters + " .\n", min_size=1, max_size=12).filter(str.strip)
_NAME = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), _FLOATS)


def _json(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    leaf = st.one_of(_SCALAR, text)
    nested = st.recursive(
        leaf, lambda inner: st.one_of(st.lists(inner), st.dictionaries(text, inner)), max_leaves=6
    )
    return st.one_of(leaf, nested)


def _not_a_tag(arguments: dict[str, Any]) -> bool:
    """Whether no plain string happens to be made of pieces into a tag, which has no escape."""
    return not any(
        isinstance(value, str) and any(tag in value for tag in ("<|im", "<tool", "<fun", "<par"))
        for value in arguments.values()
    )


_ARGUMENTS = st.dictionaries(_NAME, _json(_TEXT), max_size=4).filter(_not_a_tag)


def _poses_as_result(message: Message) -> bool:
    """Whether a user's text is one block of results, which some clients send them as."""
    content = message["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return message["role"] == "user" and text.strip().startswith("<tool_response>")


def _has_a_call(message: Message) -> bool:
    """Whether an answer's text has a tag of a call, which stays: some clients leave calls in the text."""
    tags = ("<tool_call>", "</tool_call>")
    return message["role"] == "assistant" and any(tag in message["content"] for tag in tags)


def _call(name: str, arguments: Any) -> Message:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def _round_trip(calls: list[tuple[str, dict[str, Any]]], *, as_text: bool | None) -> None:
    written = [
        _call(name, arguments if as_text is None else json.dumps(arguments, ensure_ascii=as_text))
        for name, arguments in calls
    ]
    messages: list[Message] = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "text", "reasoning": "why", "tool_calls": written},
    ]
    expected = [{"name": name, "arguments": arguments} for name, arguments in calls]
    assert calls_like(render(NAME, messages), expected) == expected


@given(st.lists(st.tuples(_NAME, _ARGUMENTS), min_size=1, max_size=3))
def test_calls_survive(calls: list[tuple[str, dict[str, Any]]]) -> None:
    _round_trip(calls, as_text=None)


@pytest.mark.slow
@given(st.lists(st.tuples(_NAME, _ARGUMENTS), min_size=1, max_size=3), st.booleans())
def test_calls_survive_as_json_text(
    calls: list[tuple[str, dict[str, Any]]],
    ascii_only: bool,  # noqa: FBT001
) -> None:
    _round_trip(calls, as_text=ascii_only)


@given(_HOSTILE, _HOSTILE, _json(_HOSTILE))
def test_what_the_model_wrote_comes_back_as_it_wrote_it(
    thought: str, text: str, argument: Any
) -> None:
    assume("think" not in thought and "think" not in text)  # clients leave reasoning in a text
    call = _call("f", {"a": argument})
    said = {"role": "assistant", "content": text, "reasoning": thought, "tool_calls": [call]}
    value = argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False)
    content = text.lstrip("\n").rstrip()
    prompt = render(NAME, [{"role": "user", "content": "go"}, said])
    assert prompt == (
        "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
        f"<think>\n{thought.strip()}\n</think>\n\n"
        + content
        + ("\n\n" if content else "")
        + f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
    )


@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda role, text: {"role": role, "content": text},
                st.sampled_from(["system", "developer", "user", "tool", "assistant"]),
                _HOSTILE,
            ),
            st.builds(
                lambda role, text: {
                    "role": role,
                    "content": [{"type": "text", "text": piece} for piece in text],
                },
                st.sampled_from(["user", "tool"]),
                st.lists(_HOSTILE, max_size=3),
            ),
            st.builds(
                lambda text, thought, argument: {
                    "role": "assistant",
                    "content": text,
                    "reasoning_content": thought,
                    "tool_calls": [_call("f", {"a": argument, "z": [argument]})],
                },
                _HOSTILE,
                _HOSTILE,
                _HOSTILE,
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_text_makes_a_turn_a_result_or_a_call(messages: list[Message]) -> None:
    assume(not any(_poses_as_result(message) or _has_a_call(message) for message in messages))
    prompt = render(
        NAME, messages, add_generation_prompt=True, escape_results=True, escape_answers=True
    )
    found = turns(prompt)  # fails on stray text and on a turn within a turn
    asked = [message for message in messages if message["role"] == "assistant"]
    assert len([turn for turn in found if turn.role == "assistant"]) == len(asked) + 1
    results = [message for message in messages if message["role"] == "tool"]
    written = "".join(turn.text for turn in found if turn.role == "user")
    assert written.count("<tool_response>") == len(results)
    assert written.count("</tool_response>") == len(results)
    for turn, message in zip(
        (turn for turn in found if turn.role == "assistant"), asked, strict=False
    ):
        if message.get("tool_calls"):
            (call,) = calls_like(
                f"<|im_start|>assistant\n{turn.text}<|im_end|>\n",
                [{"name": "f", "arguments": {"z": []}}],
            )
            assert call["arguments"]["z"] == message["tool_calls"][0]["function"]["arguments"]["z"]


def _as_minijinja_reads_it(value: Any) -> bool:
    """Whether no number is one that the wheel takes for another, before a template sees it."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return all(_as_minijinja_reads_it(one) for one in inner)
    if isinstance(value, float):
        return not value.is_integer()
    return not isinstance(value, int) or abs(value) < 1 << 63


_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "developer", "user", "tool", "function", "assistant"]),
        "content": st.one_of(
            _HOSTILE,
            st.none(),
            st.lists(st.builds(lambda text: {"type": "text", "text": text}, _HOSTILE), max_size=2),
        ),
    },
    optional={
        "reasoning": st.one_of(st.none(), _HOSTILE),
        "thinking": _HOSTILE,
        "tool_calls": st.lists(
            st.one_of(
                st.builds(
                    _call,
                    _NAME,
                    st.dictionaries(
                        _NAME, _json(_HOSTILE).filter(_as_minijinja_reads_it), max_size=2
                    ),
                ),
                st.builds(lambda name, value: _call(name, json.dumps(value)), _NAME, _json(_TEXT)),
            ),
            max_size=2,
        ),
    },
)


@given(st.lists(_MESSAGE, min_size=1, max_size=5), st.booleans(), st.booleans())
def test_both_engines_render_the_same(
    messages: list[Message],
    thinking: bool,  # noqa: FBT001
    preserving: bool,  # noqa: FBT001
) -> None:
    kwargs: dict[str, Any] = {"enable_thinking": thinking, "preserve_thinking": preserving}
    kwargs["add_generation_prompt"] = True
    assert render_by_minijinja(NAME, messages, **kwargs) == render(NAME, messages, **kwargs)


# ---- the cache: what was computed for one prompt is found again in the next ---------------------


@st.composite
def _session(draw: st.DrawFn, *, reasoning: bool) -> list[Message]:
    """Return questions, each with some rounds of calls and an answer."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(_HOSTILE)})
        for _ in range(draw(st.integers(0, 2))):
            calls = draw(st.lists(st.tuples(_NAME, _ARGUMENTS), min_size=1, max_size=2))
            messages.append(
                {
                    "role": "assistant",
                    "content": draw(st.one_of(st.just(""), _PLAIN)),
                    "tool_calls": [_call(name, arguments) for name, arguments in calls],
                }
            )
            messages += [{"role": "tool", "content": draw(_HOSTILE)} for _ in calls]
        messages.append({"role": "assistant", "content": draw(_PLAIN)})
    if reasoning:
        for message in messages:
            if message["role"] == "assistant":
                message["reasoning"] = draw(st.one_of(st.just(""), _PLAIN))
    return messages


def _written(message: Message) -> str:
    """Write an answer as a model does, without the template's help."""
    thought = message.get("reasoning")
    text = message["content"].lstrip("\n")
    calls = [call["function"] for call in message.get("tool_calls", ())]
    blocks = []
    for call in calls:
        lines = ["<tool_call>", f"<function={call['name']}>"]
        for key, value in call["arguments"].items():
            as_text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines += [f"<parameter={key}>", as_text, "</parameter>"]
        blocks.append("\n".join([*lines, "</function>", "</tool_call>"]))
    if calls:
        text = text.rstrip()
        text += ("\n\n" if text else "") + "\n".join(blocks)
    return text if thought is None else f"{thought.strip()}\n</think>\n\n{text}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reasoning", "across_questions", "kwargs"),
    [
        pytest.param(True, True, {}, id="reasoning stays"),
        pytest.param(
            True, False, {"preserve_thinking": False}, id="reasoning goes with the next question"
        ),
        pytest.param(False, True, {"enable_thinking": False}, id="no reasoning"),
    ],
)
@given(data=st.data())
def test_prompt_and_answer_begin_every_later_prompt(
    data: st.DataObject, *, reasoning: bool, across_questions: bool, kwargs: dict[str, Any]
) -> None:
    messages = data.draw(_session(reasoning=reasoning))
    seen: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "user" and not across_questions:
            seen = []
        if message["role"] == "assistant":
            prompt = render(NAME, messages[:i], add_generation_prompt=True, **kwargs)
            for earlier in seen:
                assert prompt.startswith(earlier)
            seen.append(f"{prompt}{_written(message)}<|im_end|>\n")


@pytest.mark.slow
@given(_session(reasoning=True))
def test_dropped_reasoning_costs_the_last_question_only(messages: list[Message]) -> None:
    """What stands before a question is the same from the moment that it is asked."""
    seen: list[str] = []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = render(NAME, messages[:i], add_generation_prompt=True, preserve_thinking=False)
            for earlier in seen:
                assert prompt.startswith(earlier)
        if message["role"] == "user":
            seen.append(render(NAME, messages[: i + 1], preserve_thinking=False))


@given(_session(reasoning=False))
def test_history_never_changes_when_the_client_drops_reasoning(messages: list[Message]) -> None:
    """Results of one round share a turn, so only a whole round is a history."""
    cuts = [
        i
        for i, message in enumerate(messages, 1)
        if not (message["role"] == "tool" and messages[i : i + 1] and messages[i]["role"] == "tool")
    ]
    for earlier, later in pairwise(render(NAME, messages[:i]) for i in cuts):
        assert later.startswith(earlier)
