"""Conversations that any template can be held against: what it loses of them, and of the KV cache.

vLLM finds the keys and values of a prompt again as far as it begins as an earlier one did, with what was
generated behind it. What a model generates is what the template itself writes of the assistant's
message, so a turn is kept if the next prompt begins with the history that ends with that message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vllm_mods.base.model import Finding, Level
from vllm_mods.template.about import OPENAI
from vllm_mods.template.conversation import Conversation, Message
from vllm_mods.template.rendering import Rendered

_SHOWN = 40
_PLAIN = ("chat", "agent")
_TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks a word up.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    },
)


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _answer(text: str, reasoning: str | None = None, *calls: Message) -> Message:
    message: Message = {"role": "assistant", "content": text}
    if reasoning is not None:  # vLLM hands it over by both names
        message |= {"reasoning": reasoning, "reasoning_content": reasoning}
    return message | {"tool_calls": list(calls)} if calls else message


def _call(number: int, word: str) -> Message:
    function = {"name": "look_up", "arguments": {"word": word}}
    return {"id": f"call{number:05}", "type": "function", "function": function}


def _result(number: int, text: str) -> Message:
    return {
        "role": "tool",
        "tool_call_id": f"call{number:05}",
        "name": "look_up",
        "content": text,
    }


def _agent(*, reasoning: bool) -> tuple[Message, ...]:
    def thought(text: str) -> str | None:
        return text if reasoning else None

    return (
        _user("What is an abacus?"),
        _answer("", thought("It is a basalt matter."), _call(1, "citadel")),
        _result(1, "a device of dolomite"),
        _answer("", thought("So an eclipse it is."), _call(2, "flint")),
        _result(2, "see granite"),
        _answer("An harbour of beads.", thought("That is the island.")),
        _user("And a juniper?"),
        _answer("", thought("Once more a kestrel."), _call(3, "lantern")),
        _result(3, "a tree of marble"),
        _answer("A nettle of trees.", thought("Now it is the obsidian.")),
        _user("Thanks, no pelican?"),
    )


SCENES = (
    Conversation(
        "chat",
        (
            {"role": "system", "content": "Be quartz."},
            _user("First the raven."),
            _answer("Then the saffron."),
            _user("And the thistle?"),
            _answer("Next the umber."),
            _user("Last the violet."),
        ),
    ),
    Conversation("agent", _agent(reasoning=False), _TOOLS),
    Conversation("agent-that-reasons", _agent(reasoning=True), _TOOLS),
    Conversation(
        "parallel-calls",
        (
            _user("Two words: walnut."),
            _answer("", None, _call(1, "xenon"), _call(2, "yarrow")),
            _result(1, "a gas of zinc"),
            _result(2, "a herb of amber"),
            _answer("Both are bronze."),
            _user("And cobalt?"),
        ),
        _TOOLS,
    ),
    Conversation(
        "thinking-off",
        (_user("Is it dahlia?"), _answer("It is ebony."), _user("Is it fennel?")),
        kwargs={"enable_thinking": False},
    ),
    Conversation(
        "system-message-midway",
        (
            _user("Is it garnet?"),
            _answer("It is hazel."),
            {"role": "system", "content": "From now on be indigo."},
            _user("Is it jasmine?"),
            _answer("It is kelp."),
            _user("Is it lilac?"),
        ),
    ),
)


class TurnPrompts(NamedTuple):
    """What has to be rendered for one turn: its prompt, the history with it, and what comes next."""

    message: Message
    prompt: Conversation
    without: Conversation
    history: Conversation
    following: Conversation


class Replayed(NamedTuple):
    """What one conversation lost. ``bytes`` are those that could be found again, ``kept`` those that were."""

    conversation: Conversation
    turns: int
    turns_kept: int
    bytes: int
    kept: int
    findings: tuple[Finding, ...]


def scenes(variables: Sequence[str], content_format: str) -> tuple[Conversation, ...]:
    """Return the conversations that a template can be asked for, their content as vLLM hands it over."""
    read = set(variables)
    return tuple(
        one._replace(
            messages=tuple(_handed_over(message, content_format) for message in one.messages)
        )
        for one in SCENES
        if one.kwargs.keys() <= read and (one.tools is None or "tools" in read)
    )


def replayed(
    asked: Sequence[Conversation], render: Callable[[Sequence[Conversation]], Sequence[Rendered]]
) -> tuple[tuple[Replayed, ...], tuple[Rendered, ...]]:
    """Render all that conversations need with one call, and judge each; also return their own prompts."""
    jobs = [[part for step in steps(one) for part in step[1:]] for one in asked]
    prompts = iter(render([*(part for parts in jobs for part in parts), *asked]))
    found = tuple(
        judged(one, [next(prompts) for _ in parts]) for one, parts in zip(asked, jobs, strict=True)
    )
    return found, tuple(prompts)


def steps(conversation: Conversation) -> tuple[TurnPrompts, ...]:
    """Return a step for each answer of the assistant that something follows."""
    messages = conversation.messages
    answers = [i for i, one in enumerate(messages) if one["role"] == "assistant"]
    ends = [*answers[1:], len(messages)]

    def cut(end: int, *, prompted: bool) -> Conversation:
        return conversation._replace(messages=messages[:end], add_generation_prompt=prompted)

    return tuple(
        TurnPrompts(
            messages[i],
            cut(i, prompted=True),
            cut(i, prompted=False),
            cut(i + 1, prompted=False),
            cut(end, prompted=True),
        )
        for i, end in zip(answers, ends, strict=True)
        if end > i + 1
    )


def judged(conversation: Conversation, rendered: Sequence[Rendered]) -> Replayed:
    """Hold the prompts of a conversation's ``steps``, four to each, against each other."""
    found: list[Finding] = []
    turns = kept_turns = total = kept = 0
    last = None
    for step, at in zip(steps(conversation), range(0, len(rendered), 4), strict=True):
        failed = next((one for one in rendered[at : at + 4] if one.prompt is None), None)
        if failed is not None:
            # A refusal is heard by the client; only what everybody sends must not be refused.
            level = Level.ERROR if conversation.name in _PLAIN else Level.NOTE
            refused = Finding("not-rendered", failed.error or "", line=failed.line, level=level)
            return Replayed(conversation, 0, 0, 0, 0, (refused,))
        prompt, without, history, last = (one.prompt or "" for one in rendered[at : at + 4])
        wanted = _findable(step.message, prompt, without, history)
        same = len(os.path.commonprefix([wanted, last]))  # noqa: RUF071  (letters are meant)
        turns, kept_turns = turns + 1, kept_turns + (same == len(wanted))
        total, kept = total + len(wanted.encode()), kept + len(wanted[:same].encode())
        if same < len(wanted) and not found:
            message = (
                f"turn {turns}: of {len(wanted):,} letters {len(wanted) - same:,} are not found again: "
                f"{wanted[same : same + _SHOWN]!r} is {last[same : same + _SHOWN]!r} in the next prompt"
            )
            found.append(Finding("cache-lost", message))
    lost = [text for text in _said(conversation) if last is not None and text not in last]
    if lost:
        more = f" and {len(lost) - 1} more of its texts" if lost[1:] else ""
        verb = "are" if lost[1:] else "is"
        found.insert(0, Finding("content-lost", f"{lost[0]!r}{more} {verb} not in the prompt"))
    return Replayed(conversation, turns, kept_turns, total, kept, tuple(found))


def _findable(message: Message, prompt: str, without: str, history: str) -> str:
    """Return what the next prompt can begin with: to the end of what the answer says.

    A client that drops the reasoning has not sent back what it got: then only what was before counts.
    """
    texts = [text for _, text in _strings(message)]
    end = max((history.rfind(text) + len(text) for text in texts if text in history), default=0)
    if history.startswith(prompt):
        return history[: max(end, len(prompt))]
    return prompt if "reasoning" in message else without


def _said(conversation: Conversation) -> Iterator[str]:
    """Yield all texts that must not be lost: of reasoning, only what belongs to the last question."""
    messages = conversation.messages
    question = max(i for i, one in enumerate(messages) if one["role"] == "user")
    for i, message in enumerate(messages):
        for what, text in _strings(message):
            if what != "reasoning" or i > question:
                yield text


def _strings(message: Message) -> Iterator[tuple[str, str]]:
    content: Any = message["content"]
    for text in [content] if isinstance(content, str) else [part["text"] for part in content]:
        if text:
            yield "content", text
    if "reasoning" in message:
        yield "reasoning", message["reasoning"]
    for call in message.get("tool_calls", ()):
        yield "call", call["function"]["name"]
        yield "call", call["function"]["arguments"]["word"]


def _handed_over(message: Message, content_format: str) -> Message:
    content = message["content"]
    if content_format != OPENAI or not content:
        return message
    return message | {"content": [{"type": "text", "text": content}]}
