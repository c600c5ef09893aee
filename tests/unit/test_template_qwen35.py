"""The bundled template for Qwen3.5: its conversations, the round trip of calls, the cache."""

from __future__ import annotations

import json
import os
import string
import tomllib
from itertools import pairwise
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from template_env import (
    Message,
    calls_like,
    detector,
    render,
    source,
    template_folder,
    turns,
    undeclared,
)

from vllm_mods.library import Library, data_root
from vllm_mods.trees.open import open_tree

NAME = "qwen3.5-enhanced"
FOLDER = template_folder(NAME)
MODES = range(1, 16)


def _conversations() -> dict[str, dict[str, Any]]:
    folder = os.path.join(FOLDER, "conversations")
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found[name.removesuffix(".json")] = json.load(file)
    return found


CONVERSATIONS = _conversations()


def _render(conversation: dict[str, Any]) -> str:
    return render(
        NAME,
        conversation["messages"],
        tools=conversation.get("tools"),
        add_generation_prompt=conversation["add_generation_prompt"],
        **conversation["kwargs"],
    )


# ---- the conversations that lie beside the template -------------------------------------------


def test_every_failure_mode_has_a_conversation() -> None:
    assert {conversation["failure_mode"] for conversation in CONVERSATIONS.values()} == set(MODES)


@pytest.mark.parametrize("slug", CONVERSATIONS)
def test_conversation_expects_only_known_things(slug: str) -> None:
    known = {"rendered", "contains", "absent", "error", "tool_calls"}
    expect = CONVERSATIONS[slug]["expect"]
    assert expect
    assert set(expect) <= known


@pytest.mark.parametrize("slug", CONVERSATIONS)
def test_conversation(slug: str) -> None:
    conversation = CONVERSATIONS[slug]
    expect = conversation["expect"]
    if "error" in expect:
        with pytest.raises(jinja2.TemplateError) as caught:
            _render(conversation)
        assert expect["error"] in str(caught.value)
        return
    prompt = _render(conversation)
    if "rendered" in expect:
        assert prompt == expect["rendered"]
    for text in expect.get("contains", ()):
        assert text in prompt
    for text in expect.get("absent", ()):
        assert text not in prompt
    assert calls_like(prompt, expect.get("tool_calls", ())) == expect.get("tool_calls", [])


_WHOLE = [
    slug
    for slug, conversation in CONVERSATIONS.items()
    if "error" not in conversation["expect"] and conversation["kwargs"].get("escape_tags", True)
]


@pytest.mark.parametrize("slug", _WHOLE)
def test_turns_are_whole(slug: str) -> None:
    """Each turn has a known role and ends, but for the one that the model is to write."""
    conversation = CONVERSATIONS[slug]
    found = turns(_render(conversation))
    assert {turn.role for turn in found} <= {"system", "user", "assistant"}
    is_open = conversation["add_generation_prompt"] or conversation["kwargs"].get(
        "continue_final_message", False
    )
    assert [turn.closed for turn in found] == [True] * (len(found) - 1) + [not is_open]


# ---- what the template says of itself ---------------------------------------------------------


def _manifest() -> dict[str, Any]:
    with open(os.path.join(FOLDER, "template.toml"), "rb") as file:
        return tomllib.load(file)


def test_kwargs_are_the_ones_the_template_reads() -> None:
    """vLLM passes on what the template leaves undeclared, and drops the rest without a word."""
    kwargs = _manifest()["kwargs"]
    assert set(kwargs) <= undeclared(source(NAME))
    for name, kwarg in kwargs.items():
        messages = CONVERSATIONS["12-reasoning-of-answered-questions"]["messages"]
        default = {name: kwarg["default"]}
        assert render(NAME, messages, add_generation_prompt=True, **default) == render(
            NAME, messages, add_generation_prompt=True
        )


def test_mod_and_template_agree() -> None:
    manifest = _manifest()
    mod = Library().load(NAME)
    assert (mod.name, mod.version, mod.license) == (
        manifest["name"],
        manifest["version"],
        manifest["license"],
    )
    assert not mod.default
    assert mod.serve_args == (
        "--tool-call-parser",
        manifest["tool_call_parser"],
        "--reasoning-parser",
        manifest["reasoning_parser"],
    )
    (variant,) = mod.variants
    (template,) = variant.templates
    with open(os.path.join(data_root(), template.source), "rb") as file:
        assert file.read() == template.data


def test_no_messages_is_an_error() -> None:
    with pytest.raises(jinja2.TemplateError, match="no messages"):
        render(NAME, [])


# ---- properties -------------------------------------------------------------------------------

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
_SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
)


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
_NESTED = st.dictionaries(
    _NAME, st.one_of(st.lists(_json(_HOSTILE)), st.dictionaries(_HOSTILE, _json(_HOSTILE)))
)


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


@given(st.lists(st.tuples(_NAME, _ARGUMENTS), min_size=1, max_size=3), st.booleans())
def test_calls_survive_as_json_text(
    calls: list[tuple[str, dict[str, Any]]],
    ascii_only: bool,  # noqa: FBT001
) -> None:
    _round_trip(calls, as_text=ascii_only)


@given(_NESTED, st.sampled_from([None, True, False]))
def test_tags_within_lists_and_mappings_lose_nothing(
    arguments: dict[str, Any],
    as_text: bool | None,  # noqa: FBT001
) -> None:
    _round_trip([("f", arguments)], as_text=as_text)


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
    prompt = render(NAME, messages, add_generation_prompt=True)
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
                f"<|im_start|>assistant\n{turn.text}<|im_end|>\n", [{"arguments": {"z": []}}]
            )
            assert call["arguments"]["z"] == message["tool_calls"][0]["function"]["arguments"]["z"]


@st.composite
def _session(draw: st.DrawFn, *, reasoning: bool) -> list[Message]:
    """Return questions, each with some rounds of calls and an answer."""
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(_TEXT)})
        for _ in range(draw(st.integers(0, 2))):
            calls = draw(st.lists(st.tuples(_NAME, _ARGUMENTS), min_size=1, max_size=2))
            messages.append(
                {
                    "role": "assistant",
                    "content": draw(st.one_of(st.just(""), _PLAIN)),
                    "tool_calls": [_call(name, arguments) for name, arguments in calls],
                }
            )
            messages += [{"role": "tool", "content": draw(_TEXT)} for _ in calls]
        messages.append({"role": "assistant", "content": draw(_PLAIN)})
    if reasoning:
        for message in messages:
            if message["role"] == "assistant":
                message["reasoning"] = draw(_PLAIN)
    return messages


def _prompts(messages: list[Message], **kwargs: Any) -> list[str]:
    """Return the prompt of each request of a session: one before every assistant message."""
    return [
        render(NAME, messages[:i], add_generation_prompt=True, **kwargs)
        for i, message in enumerate(messages)
        if message["role"] == "assistant"
    ]


def _each_begins_the_next(prompts: list[str]) -> None:
    for earlier, later in pairwise(prompts):
        assert later.startswith(earlier)


@given(_session(reasoning=False))
def test_cache_is_found_again_without_thinking(messages: list[Message]) -> None:
    _each_begins_the_next(_prompts(messages, enable_thinking=False))


@given(_session(reasoning=True))
def test_cache_is_found_again_with_preserved_thinking(messages: list[Message]) -> None:
    _each_begins_the_next(_prompts(messages, preserve_thinking=True))


@given(_session(reasoning=True))
def test_cache_is_found_again_within_a_question(messages: list[Message]) -> None:
    questions = [i for i, message in enumerate(messages) if message["role"] == "user"]
    after_last = [
        render(NAME, messages[:i], add_generation_prompt=True)
        for i, message in enumerate(messages)
        if message["role"] == "assistant" and i > questions[-1]
    ]
    _each_begins_the_next(after_last)


@given(_session(reasoning=False))
def test_history_never_changes_when_the_client_drops_reasoning(messages: list[Message]) -> None:
    cuts = [
        i
        for i, message in enumerate(messages, 1)
        if not (message["role"] == "tool" and messages[i : i + 1] and messages[i]["role"] == "tool")
    ]
    _each_begins_the_next([render(NAME, messages[:i]) for i in cuts])


@given(_PLAIN, st.sampled_from([True, False]))
def test_what_the_model_writes_is_what_history_shows(
    text: str,
    thinking: bool,  # noqa: FBT001
) -> None:
    """Prompt plus output, as the qwen3 parser splits it, is the beginning of the next prompt."""
    question = {"role": "user", "content": "Q"}
    prompt = render(NAME, [question], add_generation_prompt=True, enable_thinking=thinking)
    answer = text.lstrip("\n")
    output = f"because\n</think>\n\n{answer}" if thinking else answer
    reasoning, _, content = output.rpartition("</think>")
    message = {"role": "assistant", "content": content, "reasoning": reasoning}
    following = render(NAME, [question, message, {"role": "tool", "content": "r"}],
                       enable_thinking=thinking)  # fmt: skip
    assert following.startswith(f"{prompt}{output}<|im_end|>\n")


# ---- real releases ----------------------------------------------------------------------------

RELEASES = ("0.16.0", "0.19.1", "0.21.0", "0.23.0", "0.27.0", "0.30.0", "0.33.0")


@pytest.mark.network
@pytest.mark.parametrize("version", RELEASES)
def test_releases_detect_the_stated_content_format(version: str) -> None:
    renderer = open_tree(f"pypi:{version}").read("vllm/renderers/hf.py")
    assert renderer is not None
    assert detector(renderer)(source(NAME)) == _manifest()["content_format"]


@pytest.mark.network
def test_detection_tells_formats_apart() -> None:
    """A detector that always answered the same would pass the test above."""
    renderer = open_tree("pypi:0.33.0").read("vllm/renderers/hf.py")
    assert renderer is not None
    plain = "{% for message in messages %}{{ message.content }}{% endfor %}"
    assert detector(renderer)(plain) == "string"
