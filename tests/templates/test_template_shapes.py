"""Small templates with one fault each, which is named; and sound ones in the shapes that public ones have."""

from __future__ import annotations

import pytest

from vllm_mods.report import template as report
from vllm_mods.templates.check import check
from vllm_mods.templates.source import Template

TURN = (
    "<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}: {{ c.function.arguments | tojson }}</call>{% endfor %}"
    "</{{ m.role }}>"
)
SOUND = (
    "{{ tools | tojson if tools }}{% for m in messages %}" + TURN + "{% endfor %}"
    "{{ '<assistant>' if add_generation_prompt }}"
)
FAULTS = {
    "a system message is dropped": (
        "{{ m.content }}",
        "{{ m.content if m.role != 'system' }}",
        "loses system messages",
        "content-lost",
    ),
    "results are dropped": (
        "{{ m.content }}",
        "{{ m.content if m.role != 'tool' }}",
        "loses calls and results",
        "content-lost",
    ),
    "answers are dropped": (
        "{{ m.content }}",
        "{{ m.content if m.role != 'assistant' }}",
        "loses chats",
        "content-lost",
    ),
    "calls are dropped": ("m.tool_calls or []", "[]", "loses calls and results", "content-lost"),
    "one call of two is dropped": (
        "m.tool_calls or []",
        "(m.tool_calls or [])[:1]",
        "loses parallel calls",
        "content-lost",
    ),
    "text beside a call is dropped": (
        "{{ m.content }}",
        "{{ m.content if not m.tool_calls }}",
        "loses text beside calls",
        "content-lost",
    ),
    "the tools are counted and not told": (
        "{{ tools | tojson if tools }}",
        "{{ tools | length if tools }}",
        "loses calls and results",
        "content-lost",
    ),
    "arguments are written twice": (
        "{{ c.function.arguments | tojson }}",
        "{{ c.function.arguments | tojson }}{{ c.function.arguments.word }}",
        "writes twice calls and results",
        "written-twice",
    ),
    "nothing marks who speaks": (
        "</{{ m.role }}>",
        "</turn>",
        "does not mark who speaks in chats",
        "roles-alike",
    ),
    "an answer is not begun": (
        "{{ '<assistant>' if add_generation_prompt }}",
        "",
        "does not begin the answer in chats",
        "answer-not-begun",
    ),
    "a system message crashes it": (
        "{{ tools | tojson if tools }}",
        "{{ none + 1 if messages[0].role == 'system' }}{{ tools | tojson if tools }}",
        "does not render system messages",
        "not-rendered",
    ),
    "the beginning counts the messages": (
        "{{ tools | tojson if tools }}",
        "{{ messages | length }}{{ tools | tojson if tools }}",
        "loses the cache of chats",
        "cache-lost",
    ),
}


def checked(text: str) -> tuple[bool, str, str]:
    """Return whether it is sound, its sentence and all that is said of it."""
    reply = report.checked([check(Template("t", "t.jinja", text.encode()), ())])
    (verdict,) = (one["verdict"] for one in reply.data["templates"])
    return reply.ok, verdict, reply.words or ""


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_named_and_the_answer_is_no(name: str) -> None:
    before, after, sentence, code = FAULTS[name]
    text = SOUND.replace(before, after)
    if name == "nothing marks who speaks":
        text = text.replace("<{{ m.role }}>", "<turn>").replace("<assistant>", "<turn>")
    assert text != SOUND
    ok, verdict, words = checked(text)
    assert not ok
    assert verdict.startswith("problems: ")
    assert sentence in verdict
    assert f"[{code}]" in words


def test_there_are_twelve_faults_and_without_them_nothing_is_said() -> None:
    assert len(FAULTS) == 12
    assert checked(SOUND)[:2] == (True, "works for chat and agents; no reasoning")


# How a turn begins, @ for its role, and ends; how the role of answers is called; what stands first.
WIRES = {
    "ChatML": ("<|im_start|>@\n", "<|im_end|>\n", "assistant", ""),
    "headers": ("<|start_header_id|>@<|end_header_id|>\n\n", "<|eot_id|>", "assistant", "<|begin|>"),
    "turns of a model": ("<start_of_turn>@\n", "<end_of_turn>\n", "model", "<bos>"),
    "tokens of roles": ("<|@|>\n", "<|end|>\n", "assistant", ""),
    "capitals": ("@: ", "\n", "ASSISTANT", ""),
    "headings": ("### @:\n", "\n\n", "Response", ""),
    "full-width bars": ("<｜@｜>", "<｜end▁of▁sentence｜>", "Assistant", "<｜begin▁of▁sentence｜>"),
    "start of role": ("<|start_of_role|>@<|end_of_role|>", "<|end_of_text|>\n", "assistant", ""),
    "tokens of turns": ("<|START_OF_TURN_TOKEN|><|@_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "CHATBOT", "<BOS_TOKEN>"),
    "channels": ("<|start|>@<|message|>", "<|end|>", "assistant", ""),
}  # fmt: skip
CONTENT = (
    "{% macro text_of(content) %}{% if content is string %}{{ content }}{% elif content %}"
    "{% for part in content if part.type == 'text' %}{{ part.text }}{% endfor %}{% endif %}{% endmacro %}"
)
CALLS = (
    "{% for c in m.tool_calls or [] %}\n<tool_call>\n"
    "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>{% endfor %}"
)
TOOLS = "{% if tools %}Tools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n{% endif %}"
SHAPES = {
    "text alone": ("{{ m.content }}", ""),
    "parts, by a macro": ("{{ text_of(m.content) }}", CONTENT),
    "tools and reasoning": (
        "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}" + CALLS,
        TOOLS,
    ),
}  # fmt: skip
WORKS = {
    "text alone": "works for chat; no tools; no reasoning",
    "parts, by a macro": "works for chat; no tools; no reasoning",
    "tools and reasoning": "works for chat and agents",
}


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wire", WIRES)
def test_a_sound_shape_is_sound(wire: str, shape: str) -> None:
    begin, end, answers, first = WIRES[wire]
    content, head = SHAPES[shape]
    role = f"{{{{ '{answers}' if m.role == 'assistant' else m.role }}}}"
    turn = begin.replace("@", role) + content + end.replace("\n", "{{ '\\n' }}")
    answer = begin.replace("@", answers).replace("\n", "{{ '\\n' }}")
    prompted = f"{{% if add_generation_prompt %}}{answer}{{% endif %}}"
    text = f"{first}{head}{{% for m in messages %}}{turn}{{% endfor %}}{prompted}"
    assert checked(text)[:2] == (True, WORKS[shape])


def test_there_are_thirty_sound_shapes() -> None:
    assert len(WIRES) * len(SHAPES) == 30
