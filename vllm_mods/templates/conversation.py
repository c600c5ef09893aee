"""Conversations: what a chat template is given, and what is expected of it. Pure.

A conversation beside a template is a JSON object::

    {"title": "…", "failure_mode": 5, "messages": […], "tools": […], "kwargs": {…},
     "add_generation_prompt": true,
     "expect": {"rendered": "…", "contains": […], "absent": […], "error": "…"}}

``messages`` and ``tools`` are what the template gets, ``kwargs`` the chat template arguments. The
body of a request to ``/v1/chat/completions`` has the first two as well, and is read too.
"""

import contextlib
from typing import Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.schema import Table, in_words

Message = dict[str, Any]
STRING, OPENAI = "string", "openai"
"""How vLLM hands a message's content over: ``--chat-template-content-format``."""


class Expected(NamedTuple):
    """What a prompt has to be; what is ``None`` or empty is not asked for."""

    rendered: str | None = None
    contains: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    error: str | None = None


class Conversation(NamedTuple):
    """What a template is given; ``name`` is that of its file, without ``.json``."""

    name: str
    messages: tuple[Message, ...]
    tools: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] = {}  # noqa: RUF012  (nothing changes it)
    add_generation_prompt: bool = True
    title: str = ""
    expect: Expected = Expected()


def parse(data: bytes, where: str, name: str) -> Conversation:
    """Read a conversation that lies beside a template. Raises ``ManifestError`` with every problem."""
    top = Table(object_of(data, where), "", [])
    top.get("failure_mode", int)
    expect = top.table("expect")
    conversation = _read(top, name)._replace(
        title=top.text("title"),
        kwargs=top.table("kwargs").raw,  # type: ignore[arg-type]
        expect=Expected(
            rendered=expect.get("rendered", str),
            contains=expect.strings("contains"),
            absent=expect.strings("absent"),
            error=expect.get("error", str),
        ),
    )
    if conversation.expect == Expected() and "expect" not in top.bad:
        top.problem("expect", "is empty, so nothing would be checked")
    top.refuse_unknown()
    expect.refuse_unknown()
    if top.problems:
        raise ManifestError(where, tuple(top.problems))
    return conversation


def request(data: bytes, where: str) -> Conversation:
    """Read a list of messages, a conversation, or the body of a request to vLLM.

    A client sends ``arguments`` as JSON text, and vLLM makes objects of them before the template sees
    them; so does this. Other keys of a request say nothing to a template. Raises ``ManifestError``.
    """
    raw = _json(data, where)
    top = Table({"messages": raw} if isinstance(raw, list) else object_of(data, where), "", [])
    given = dict(top.table("kwargs").raw) | dict(top.table("chat_template_kwargs").raw)
    if top.get("continue_final_message", bool) is not None:
        given["continue_final_message"] = top.raw["continue_final_message"]
    conversation = _read(top, where)
    if top.problems:
        raise ManifestError(where, tuple(top.problems))
    messages = tuple(map(_parse_calls, conversation.messages))
    return conversation._replace(messages=messages, kwargs=given)


def _read(top: Table, name: str) -> Conversation:
    if not top.raw.get("messages"):
        top.problem("messages", "there are none")
    messages = top.tables("messages")
    for message in messages:
        message.get("role", str, required=True)
    return Conversation(
        name=name,
        messages=tuple(dict(message.raw) for message in messages),
        tools=tuple(tool.raw for tool in top.tables("tools")) or None,
        add_generation_prompt=top.get("add_generation_prompt", bool) is not False,
    )


def _parse_calls(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return message | {"tool_calls": [_parse_call(call) for call in calls]}


def _parse_call(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(text)} as function}:
            with contextlib.suppress(ValueError):
                if isinstance(read := json_of(text), dict):
                    return call | {"function": function | {"arguments": read}}
        case _:
            pass
    return call


def object_of(data: bytes, where: str, hint: str | None = None) -> dict[str, Any]:
    """Read a JSON object. Raises ``ManifestError``, with ``hint`` for other JSON."""
    raw = _json(data, where)
    if not isinstance(raw, dict):
        raise ManifestError(where, (f"expected an object, found {in_words(raw)}",), hint=hint)
    return raw


def _json(data: bytes, where: str) -> Any:
    try:
        return json_of(data)
    except ValueError as error:
        raise ManifestError(where, (f"not JSON: {error}",)) from error
