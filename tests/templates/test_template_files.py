"""The bundled chat templates: their conversations, and what they say of themselves."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections import defaultdict
from typing import Any

import jinja2
import pytest
from qwen_calls import turns
from template_env import (
    Message,
    calls_like,
    conversations,
    detector,
    expected_calls,
    manifest,
    render,
    render_by_minijinja,
    source,
    undeclared,
)

from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import data_root
from vllm_mods.trees.open import open_tree

QWEN35, QWEN36 = NAMES = ("qwen3.5-enhanced", "qwen3.6-enhanced")
QWEN38 = "qwen3.8-enhanced"
MODES = range(1, 16)
NOT_ESCAPED = ("25-tags-in-calls", "27-tags-left-alone", "36-results-are-not-touched")
"""Text that is handed over as it is may end a turn anywhere."""
EVERY = (*NAMES, QWEN38)
CONVERSATIONS = {name: conversations(name) for name in EVERY}
TOLD = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks a word up.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    },
    {
        "type": "function",
        "function": {
            "name": "nothing",
            "description": 'Does "it" <b> ö.',
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
ALL = [(name, slug) for name in EVERY for slug in CONVERSATIONS[name]]
EACH_TEMPLATE = pytest.mark.parametrize("name", EVERY)
EACH = pytest.mark.parametrize(("name", "slug"), ALL)


def _render(name: str, conversation: dict[str, Any]) -> str:
    return render(
        name,
        conversation["messages"],
        tools=conversation.get("tools"),
        add_generation_prompt=conversation["add_generation_prompt"],
        **conversation["kwargs"],
    )


# ---- the conversations that lie beside the templates -------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_failure_mode_has_a_conversation(name: str) -> None:
    assert {one["failure_mode"] for one in CONVERSATIONS[name].values()} == set(MODES)


def test_the_readme_says_which_conversation_shows_what() -> None:
    with open(os.path.join(data_root(), "templates", "README.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| (\d+) \|.*\| (.*)\| (.*)\|$", file.read(), re.MULTILINE)
    said = {
        int(mode): [set(re.findall("`(.*?)`", cell)) for cell in cells] for mode, *cells in rows
    }
    found: dict[int, list[set[str]]] = defaultdict(lambda: [set(), set()])
    for slug, one in CONVERSATIONS[QWEN36].items():
        found[one["failure_mode"]][slug not in CONVERSATIONS[QWEN35]].add(slug)
    assert said == found


def test_the_templates_differ_in_their_names_only() -> None:
    assert source(QWEN36) == source(QWEN35).replace("for Qwen3.5.", "for Qwen3.6.")
    assert "for Qwen3.6." in source(QWEN36)
    for slug, one in CONVERSATIONS[QWEN35].items():
        assert CONVERSATIONS[QWEN36][slug] == one


def test_that_of_qwen38_is_that_of_qwen36_with_the_effort_put_in() -> None:
    old, new = (source(name).splitlines() for name in (QWEN36, QWEN38))
    gone = [line for line in difflib.ndiff(old, new) if line.startswith("- ")]
    assert gone == [
        "-     Chat template for Qwen3.6. Content format: openai (a list of parts; strings work too).",
        "-         <|im_start|>system      tool definitions, then every leading system and developer message",
        "- {%- if tools or head.text %}",
        "-     {{- '<|im_start|>system\\n' }}",
    ]


@pytest.mark.parametrize("slug", CONVERSATIONS[QWEN36])
def test_without_a_sentence_of_effort_qwen38_has_the_prompts_of_qwen36(slug: str) -> None:
    one = CONVERSATIONS[QWEN36][slug]
    medium = one | {"kwargs": one["kwargs"] | {"reasoning_effort": "medium"}}
    variables = {
        "tools": one.get("tools"),
        "documents": None,
        "add_generation_prompt": one["add_generation_prompt"],
        **medium["kwargs"],
    }
    if "error" in one["expect"]:
        with pytest.raises(jinja2.TemplateError, match=re.escape(one["expect"]["error"])):
            _render(QWEN38, medium)
        with pytest.raises(jinja2.TemplateError, match=re.escape(one["expect"]["error"])):
            render_by_minijinja(QWEN38, one["messages"], **variables)
        return
    prompt = _render(QWEN36, one)
    assert _render(QWEN38, medium) == prompt
    assert render_by_minijinja(QWEN38, one["messages"], **variables) == prompt


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "digest"),
    [
        (QWEN35, "2524b54f84f04ee840b1c6a016d1a570661a22880cc1d2cee3d5354e56070c1c"),
        (QWEN36, "2524b54f84f04ee840b1c6a016d1a570661a22880cc1d2cee3d5354e56070c1c"),
        (QWEN38, "1b95f62c32ee626a0e188899ad4b4f9ccb19bb30c2cec9f5848af06dd87d12b4"),
    ],
)
def test_tools_are_told_in_the_words_of_the_models_own_template(name: str, digest: str) -> None:
    """The digests are of what the models' own templates render, whose text is not ours to keep."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q"}]
    own = render(name, messages, tools=TOLD, add_generation_prompt=False)
    assert hashlib.sha256(own.encode()).hexdigest() == digest
    ours = render(
        name, messages, tools=TOLD, add_generation_prompt=False, enhanced_tool_prompt=True
    )
    told, asked = (prompt.partition("<|im_end|>") for prompt in (own, ours))
    assert told[2] == asked[2]
    assert "These functions are available to you" in asked[0]
    assert "These functions are available to you" not in told[0]


@EACH
def test_conversation_expects_only_known_things(name: str, slug: str) -> None:
    known = {"rendered", "contains", "absent", "error"}
    expect = CONVERSATIONS[name][slug]["expect"]
    assert expect
    assert set(expect) <= known


@EACH
def test_conversation(name: str, slug: str) -> None:
    conversation = CONVERSATIONS[name][slug]
    expect = conversation["expect"]
    if "error" in expect:
        with pytest.raises(jinja2.TemplateError) as caught:
            _render(name, conversation)
        assert expect["error"] in str(caught.value)
        return
    prompt = _render(name, conversation)
    if "rendered" in expect:
        assert prompt == expect["rendered"]
    for text in expect.get("contains", ()):
        assert text in prompt
    for text in expect.get("absent", ()):
        assert text not in prompt
    if slug not in NOT_ESCAPED:
        expected = expected_calls(name, slug)
        assert calls_like(prompt, expected) == expected


@EACH
def test_the_engine_of_vllms_rust_frontend_renders_the_same(name: str, slug: str) -> None:
    one = CONVERSATIONS[name][slug]
    variables = {"tools": one.get("tools"), "documents": None, **one["kwargs"]}
    variables["add_generation_prompt"] = one["add_generation_prompt"]
    if "error" in one["expect"]:
        with pytest.raises(jinja2.TemplateError, match=re.escape(one["expect"]["error"])):
            render_by_minijinja(name, one["messages"], **variables)
    else:
        assert render_by_minijinja(name, one["messages"], **variables) == _render(name, one)


@EACH
def test_turns_are_whole(name: str, slug: str) -> None:
    """Each turn has a known role and ends, but for the one that the model is to write."""
    conversation = CONVERSATIONS[name][slug]
    if "error" in conversation["expect"] or slug in NOT_ESCAPED:
        return
    found = turns(_render(name, conversation))
    assert {turn.role for turn in found} <= {"system", "user", "assistant"}
    is_open = conversation["add_generation_prompt"] or conversation["kwargs"].get(
        "continue_final_message", False
    )
    assert [turn.closed for turn in found] == [True] * (len(found) - 1) + [not is_open]


@pytest.mark.parametrize("slug", ["18-content-parts", "24-tags-across-parts"])
def test_pictures_may_come_as_clients_send_them_or_as_vllm_hands_them_over(slug: str) -> None:
    conversation = CONVERSATIONS[QWEN35][slug]

    def bare(part: dict[str, Any]) -> dict[str, Any]:
        kind = part["type"]
        return part if kind == "text" else {"type": kind.removesuffix("_url")}

    handed_over: list[Message] = [
        message | {"content": [bare(part) for part in message["content"]]}
        for message in conversation["messages"]
    ]
    assert handed_over != conversation["messages"]
    assert _render(QWEN35, conversation | {"messages": handed_over}) == _render(
        QWEN35, conversation
    )


def test_a_message_to_be_continued_is_not_followed_by_another_turn() -> None:
    conversation = CONVERSATIONS[QWEN35]["30-prefilled-reasoning"]
    both = conversation | {"add_generation_prompt": True}
    assert _render(QWEN35, both) == _render(QWEN35, conversation)


@EACH_TEMPLATE
def test_no_messages_is_an_error(name: str) -> None:
    with pytest.raises(jinja2.TemplateError, match="no messages"):
        render(name, [])


# ---- what the templates say of themselves ------------------------------------------------------


@EACH_TEMPLATE
def test_kwargs_are_the_ones_the_template_reads(name: str) -> None:
    """vLLM passes on what the template leaves undeclared, and drops the rest without a word."""
    kwargs = manifest(name)["kwargs"]
    assert set(kwargs) <= undeclared(source(name))
    for key, kwarg in kwargs.items():
        messages = CONVERSATIONS[QWEN36]["12-reasoning-of-answered-questions"]["messages"]
        default = {key: kwarg["default"]}
        assert render(name, messages, add_generation_prompt=True, **default) == render(
            name, messages, add_generation_prompt=True
        )


@EACH_TEMPLATE
def test_mod_and_template_agree(name: str) -> None:
    said = manifest(name)
    mod = Library().load(name)
    assert (mod.name, mod.version, mod.license, mod.summary) == (
        said["name"], said["version"], said["license"], said["summary"]
    )  # fmt: skip
    assert not mod.default
    assert mod.evidence
    flag, *pairs = mod.serve_args
    arguments = dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert flag == "--enable-auto-tool-choice"
    assert arguments["--tool-call-parser"] == said["tool_call_parser"]
    assert arguments["--reasoning-parser"] == said["reasoning_parser"]
    (variant,) = mod.variants
    (template,) = variant.templates
    with open(os.path.join(data_root(), template.source), "rb") as file:
        assert file.read() == template.data


# ---- real releases -----------------------------------------------------------------------------


def _releases() -> list[str]:
    """Return the releases that the mod's lock names: all that there are since 0.15."""
    with open(os.path.join(data_root(), "patches", QWEN36, "mod.lock"), encoding="utf-8") as file:
        return [version for tree in json.load(file)["trees"] for version in tree["vllm"]]


@pytest.mark.network
@pytest.mark.parametrize("version", _releases())
def test_releases_detect_the_stated_content_format(version: str) -> None:
    renderer = open_tree(f"pypi:{version}").read("vllm/renderers/hf.py")
    assert renderer is not None
    detect = detector(renderer)
    for name in EVERY:
        assert detect(source(name)) == manifest(name)["content_format"]
    # A detector that always answered the same would pass so far.
    assert detect("{% for message in messages %}{{ message.content }}{% endfor %}") == "string"
