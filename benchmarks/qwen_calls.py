r"""The calls of tools in a prompt, read back from Qwen3-Coder's format. Pure, and free of templates.

Turns are ChatML's, ``<|im_start|>ROLE\n…<|im_end|>\n``. In a turn of the assistant each tag has a
line of its own::

    <tool_call>
    <function=NAME>
    <parameter=NAME>
    VALUE
    </parameter>
    </function>
    </tool_call>

vLLM's parsers ``qwen3_coder`` and ``qwen3_xml`` read it; this reader is stricter than they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(<\|im_end\|>\n|\Z)", re.DOTALL)
_TAG = re.compile(r"</?(tool_call|function|parameter)\b[=>]")
_CALL = re.compile(r"^<tool_call>\n(.*?)\n</tool_call>$", re.DOTALL | re.MULTILINE)
_FUNCTION = re.compile(r"<function=([^>\n]+)>\n(.*)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)


class ToolCall(NamedTuple):
    """One call of a tool; ``arguments`` by name."""

    name: str
    arguments: dict[str, Any]


class Turn(NamedTuple):
    """One turn of a prompt; ``closed`` tells whether it ended with ``<|im_end|>``."""

    role: str
    text: str
    closed: bool


def turns(prompt: str) -> tuple[Turn, ...]:
    """Split a prompt into turns. Raises ``ValueError`` for anything that lies between two."""
    parts = []
    position = 0
    while position < len(prompt):
        match = _TURN.match(prompt, position)
        if match is None:
            raise ValueError(f"between two turns: {prompt[position : position + 80]!r}")
        if "<|im_start|>" in match[2]:
            raise ValueError(f"a turn within a turn: {match[2][:200]!r}")
        parts.append(Turn(role=match[1], text=match[2], closed=bool(match[3])))
        position = match.end()
    return tuple(parts)


def read(prompt: str, like: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """Return all calls of the assistant's turns. Raises ``ValueError`` for what is no call.

    The format does not tell ``5`` from ``"5"``: a tool's schema does. Here the calls that are expected stand
    in for it: where those have text there is text, and JSON elsewhere.
    """
    read_calls = [
        call for turn in turns(prompt) if turn.role == "assistant" for call in written(turn.text)
    ]
    return tuple(
        ToolCall(name, _typed(texts, like[i].arguments if i < len(like) else {}))
        for i, (name, texts) in enumerate(read_calls)
    )


def _typed(texts: dict[str, str], like: dict[str, Any]) -> dict[str, Any]:
    return {
        key: text if isinstance(like.get(key, ""), str) else json.loads(text)
        for key, text in texts.items()
    }


def written(text: str) -> list[tuple[str, dict[str, str]]]:
    """Return the calls of one turn: names, and values as they stand there. Raises ``ValueError``."""
    around = _CALL.sub("", text).split("\n")
    if "<tool_call>" in around or "</tool_call>" in around:
        raise ValueError("a call that does not begin or does not end")
    return [_call(match[1]) for match in _CALL.finditer(text)]


def _call(body: str) -> tuple[str, dict[str, str]]:
    function = _FUNCTION.fullmatch(body)
    if function is None:
        raise ValueError(f"there is no function in the call {body[:80]!r}")
    name, rest = function.groups()
    values = {}
    position = 0
    while position < len(rest):
        match = _PARAMETER.match(rest, position)
        if match is None:
            raise ValueError(f"a stray line in a call: {rest[position:][:80]!r}")
        # vLLM's parsers would take it for real in the middle of a line too.
        if _TAG.search(match[2]):
            raise ValueError(f"a tag within the value of {match[1]}: {match[2][:80]!r}")
        values[match[1]] = match[2]
        position = match.end()
    return name, values
