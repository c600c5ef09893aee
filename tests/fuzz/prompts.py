"""Chat templates, what lies beside them, and what they are given."""

from __future__ import annotations

import json
import os
from unittest import mock

from fuzz.contract import Target
from fuzz.parts import joined, taken
from vllm_mods.base import limits
from vllm_mods.library.mod_folder import data_root
from vllm_mods.templates import conversation, rendering, source
from vllm_mods.templates.source import Template

REQUEST = json.dumps(
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"function": {"name": "f", "arguments": '{"a": [1, null]}'}}],
            },
            {"role": "tool", "content": "4"},
        ],
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template_kwargs": {"y": 1},
    }
)


def _prompt(data: bytes, _folder: str) -> None:
    """Two texts: a template and a request. The one program that may be started is the sandbox."""
    template, request = taken(data, 2)
    asked = conversation.request(request, "request")
    with mock.patch.object(limits, "TEMPLATE_SECONDS", 1):
        rendering.render(Template("t", "t.jinja", template), (asked,))


def _conversation(data: bytes, _folder: str) -> None:
    conversation.parse(data, "c.json", "c")


def _about(data: bytes, _folder: str) -> None:
    source.parse_about(data, "template.toml")


def _beside(*names: str) -> tuple[bytes, ...]:
    found = []
    for name in names:
        with open(os.path.join(data_root(), "templates", "qwen3.5-enhanced", name), "rb") as file:
            found.append(file.read())
    return tuple(found)


TARGETS = (
    Target(
        "prompt",
        _prompt,
        lambda: (
            joined("{% for m in messages %}{{ m.content|tojson }}{% endfor %}", REQUEST),
            joined("{% macro f(x) %}{{ x ~ strftime_now('%d') }}{% endmacro %}{{ f(y) }}", REQUEST),
            joined("{% set n = namespace(a=1) %}{{ raise_exception(n.a) if tools }}", REQUEST),
        ),
    ),
    Target(
        "conversation",
        _conversation,
        lambda: _beside(
            "conversations/08-parallel-calls.json", "conversations/22-unknown-role.json"
        ),
    ),
    Target("template-toml", _about, lambda: _beside("template.toml")),
)
