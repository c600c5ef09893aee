"""A release with one parser of each kind, small enough to read: what a template writes goes in and comes out."""

from __future__ import annotations

from memory_tree import MemoryTree

_MANAGER = """
import importlib

class {kind}ParserManager:
    lazy_parsers = {{"toy": ("vllm.{room}.toy", "Toy")}}
    {known} = {{}}

    @classmethod
    def get_{known_one}(cls, name):
        module, made = cls.lazy_parsers[name]
        return getattr(importlib.import_module(module), made)
"""
_TOOL = r"""
import json
from types import SimpleNamespace
from vllm.logger import init_logger

logger = init_logger(__name__)

class Toy:
    def __init__(self, tokenizer, tools=None):
        self.begin = tokenizer.get_vocab()["<call>"]
        self.sent = 0

    def adjust_request(self, request):
        return request

    def extract_tool_calls(self, text, request):
        logger.info_once("read")
        found = []
        for part in text.split("<call>")[1:]:
            name, _, arguments = part.partition("</call>")[0].partition(" ")
            found.append(SimpleNamespace(function=SimpleNamespace(name=name, arguments=arguments)))
        return SimpleNamespace(tools_called=bool(found), tool_calls=found, content=text.split("<call>")[0])

    def extract_tool_calls_streaming(self, before, now, text, before_ids, now_ids, ids, request):
        done = self.extract_tool_calls(now, request).tool_calls[: now.count("</call>")]
        new = [
            SimpleNamespace(index=self.sent + i, function=one.function)
            for i, one in enumerate(done[self.sent :])
        ]
        self.sent = len(done)
        content = "" if "<call>" in before else text.partition("<call>")[0]
        return SimpleNamespace(content=content, reasoning=None, tool_calls=new)
"""
_REASONING = """
from types import SimpleNamespace

class Toy:
    def __init__(self, tokenizer, **given):
        self.end = tokenizer.get_vocab()["</think>"]

    def is_reasoning_end(self, ids):
        return self.end in ids

    def extract_content_ids(self, ids):
        return ids[ids.index(self.end) + 1 :]

    def extract_reasoning(self, text, request):
        thought, closed, content = text.partition("</think>")
        return (thought, content) if closed else (None, text)

    def extract_reasoning_streaming(self, before, now, text, before_ids, now_ids, ids):
        thought, closed, content = text.partition("</think>")
        return SimpleNamespace(reasoning=thought, content=content, tool_calls=[])
"""
_REQUEST = """
class ChatCompletionRequest:
    def __init__(self, **given):
        self.__dict__.update(given)
"""
TEMPLATE = b"""
{{- tools|tojson if tools else '' }}
{%- for m in messages %}
{{- '<' ~ m.role ~ '>' }}
{%- if m.role == 'assistant' %}{{ (m.reasoning or '') ~ '</think>' }}{% endif %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}
{{- '<call>' ~ call.function.name ~ ' ' ~ call.function.arguments|tojson ~ '</call>' }}
{%- endfor %}
{{- '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
"""


def toy_release(hostile: str = "", **more: str) -> MemoryTree:
    """Return a tree with these parsers; ``hostile`` is run when the tool parsers are imported."""
    manager = _MANAGER.format
    tools = manager(kind="Tool", room="tool_parsers", known="tool_parsers", known_one="tool_parser")
    thoughts = manager(
        kind="Reasoning", room="reasoning", known="reasoning_parsers", known_one="reasoning_parser"
    )
    files = {
        "vllm/tool_parsers/__init__.py": tools + hostile,
        "vllm/tool_parsers/toy.py": _TOOL,
        "vllm/reasoning/__init__.py": thoughts,
        "vllm/reasoning/toy.py": _REASONING,
        "vllm/entrypoints/openai/chat_completion/protocol.py": _REQUEST,
        **more,
    }
    return MemoryTree({path: text.encode() for path, text in files.items()}, version="0.21.0")
