"""Conversations: what a chat template is given, and what is expected of it. Pure.

A conversation beside a template is a JSON object::

    {"title": "…", "failure_mode": 5, "messages": […], "tools": […], "kwargs": {…},
     "add_generation_prompt": true,
     "expect": {"rendered": "…", "contains": […], "absent": […], "error": "…"}}

``messages`` and ``tools`` are what the template gets, ``kwargs`` the chat template arguments. The
body of a request to ``/v1/chat/completions`` has the first two as well, and is read too.
"""

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import json_in, json_of
from vllm_mods.formats.schema import Table, decode, object_of

Message = dict[str, Any]
STRING, OPENAI = "string", "openai"
"""How vLLM hands a message's content over: ``--chat-template-content-format``."""


class Expected(NamedTuple):
    """What a prompt has to be; what is ``None`` or empty is not asked for."""

    rendered: str | None = None
    contains: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    error: str | None = None


def _why_no_message(message: Message) -> str | None:
    return None if isinstance(message.get("role"), str) else "has no `role`, which is text"


class Conversation(NamedTuple):
    """What a template is given; ``name`` is that of its file, without ``.json``."""

    name: str
    messages: tuple[Annotated[Message, _why_no_message], ...]
    tools: tuple[dict[str, Any], ...] | None = None
    kwargs: dict[str, Any] = {}  # noqa: RUF012  (nothing changes it)
    add_generation_prompt: bool = True
    title: str = ""
    expect: Expected = Expected()
    failure_mode: int | None = None


def parse(data: bytes, where: str, name: str) -> Conversation:
    """Read a conversation that lies beside a template. Raises ``ManifestError`` with every problem."""
    conversation = _read(object_of(data, where), where, name)
    if conversation.expect == Expected():
        raise ManifestError(where, ("expect: is empty, so nothing would be checked",))
    return conversation


def request(data: bytes, where: str) -> Conversation:
    """Read a list of messages, a conversation, or the body of a request to vLLM.

    A client sends ``arguments`` as JSON text, and vLLM makes objects of them before the template sees
    them; so does this. Other keys of a request say nothing to a template. Raises ``ManifestError``.
    """
    raw = json_in(data, where)
    top = Table({"messages": raw} if isinstance(raw, list) else object_of(data, where), "", [])
    given = dict(top.table("kwargs").raw) | dict(top.table("chat_template_kwargs").raw)
    if top.get("continue_final_message", bool) is not None:
        given["continue_final_message"] = top.raw["continue_final_message"]
    if top.problems:
        raise ManifestError(where, tuple(top.problems))
    conversation = _read(top.raw, where, where, more=True)
    messages = tuple(map(_parse_calls, conversation.messages))
    return conversation._replace(messages=messages, kwargs=given)


def _read(raw: Mapping[str, Any], where: str, name: str, *, more: bool = False) -> Conversation:
    # an empty list, and what is null, says nothing
    stated = {key: value for key, value in raw.items() if value not in (None, [])}
    return decode(Conversation, stated | {"name": name}, where, more=more)


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
