"""Conversations for every template: what it loses of them, and of the KV cache.

vLLM finds the keys and values of a prompt again as far as it begins as an earlier one did, with what was
generated behind it. What a model generates is what the template itself writes of the assistant's
message, so a turn is kept if the next prompt begins with the history that ends with that message.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, all_well
from vllm_mods.templates.conversation import OPENAI, Conversation, Message
from vllm_mods.templates.rendering import Rendered

_SHOWN = 40
_LONGEST = 100
_PLAIN = ("chat", "agent")
_RARE = "system-message-midway"
_LONG = "long-chat"
# Where a template reads tools, a conversation with calls asks the same.
_NO_TOOLS = "chat-that-reasons"
_SWITCHES = ("enable_thinking", "open_thinking", "thinking")
_REASONING = re.compile("think|thought|reason", re.IGNORECASE)
_OPENED = re.compile(r"(?<!/)(?<!end_)(think|thought|reason)[^</]*\Z", re.IGNORECASE)
"""The end of a prompt that leaves it to the model to reason first."""


def tool(name: str, **types: str) -> dict[str, Any]:
    """Return a tool as vLLM hands it over; ``types`` are those of its parameters."""
    properties = {key: {"type": kind} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties}
    about = {"name": name, "description": "Does it.", "parameters": parameters}
    return {"type": "function", "function": about}


def assistant_message(text: str, reasoning: str | None = None, *calls: Message) -> Message:
    """Return an assistant's message as vLLM hands it over."""
    message: Message = {"role": "assistant", "content": text}
    if reasoning is not None:  # vLLM hands it over by both names
        message |= {"reasoning": reasoning, "reasoning_content": reasoning}
    return message | {"tool_calls": list(calls)} if calls else message


def message_of(answer: Mapping[str, Any]) -> Message:
    """Return the message that a client sends back after an answer: its content, reasoning and calls."""
    numbered = enumerate(answer.get("calls", ()))
    calls = (tool_call(i, call["name"], call["arguments"]) for i, call in numbered)
    return assistant_message(answer["content"], answer.get("reasoning") or None, *calls)


def tool_call(number: int, name: str, arguments: dict[str, Any]) -> Message:
    """Return a call as vLLM hands it over, by an id that every family takes."""
    function = {"name": name, "arguments": arguments}
    return {"id": f"call{number:05}", "type": "function", "function": function}


_WORDS = {
    "system": "the system message",
    "user": "the question",
    "assistant": "the answer",
    "tool": "the result",
    "call": "the call of",
    "argument": "the call with",
}


def _read_scenes() -> Iterator[Conversation]:
    """Read the conversations for every template; a long one is made, for what shows in it alone."""
    text = files(__package__).joinpath("scenes.json").read_bytes()
    for name, scene in json.loads(text).items():
        tools = tuple(scene.get("tools", ())) or None
        messages, kwargs = tuple(scene["messages"]), scene.get("kwargs", {})
        yield Conversation(name, messages, tools, kwargs=kwargs, title=scene["title"])
    questions = [{"role": "user", "content": f"Is it mimosa {number}?"} for number in range(12)]
    answers = [assistant_message(f"It is {number}.") for number in range(12)]
    many = [message for turn in zip(questions, answers, strict=True) for message in turn]
    lines = "".join(f"Line {number} of nigella.\n" for number in range(400))
    last = (
        {"role": "user", "content": "if (a < b && c > 'd') {\n\n    \"é 漢 🙂\" % {{e}}\n}"},
        assistant_message("def f():\n    return '<b>&amp;</b>'"),
        {"role": "user", "content": f"{lines}{'And one of many words, ' * 50}is it?"},
    )
    yield Conversation(_LONG, (*many, *last), title="long messages")


SCENES = tuple(_read_scenes())


class CaseOutcome(NamedTuple):
    """What became of one conversation, and what it lost: of its turns, and of the bytes that could be found again, so many were kept."""

    conversation: Conversation
    rendered: Rendered
    findings: tuple[Finding, ...]
    turns: int = 0
    turns_kept: int = 0
    bytes: int = 0
    bytes_kept: int = 0

    @property
    def ok(self) -> bool:
        """Whether the prompt is as it should be."""
        return all_well(self.findings)


Cut = tuple[int, bool]
"""How many messages of a conversation, and whether the answer is begun."""
Render = Callable[[Sequence[Conversation]], Sequence[Rendered]]


def scenes(variables: Sequence[str], content_format: str, text: bytes) -> tuple[Conversation, ...]:
    """Return the conversations that a template can be asked for, their content as vLLM hands it over.

    Reasoning is sent to those that read it, and with it the switch that has the model reason.
    """
    read = set(variables)
    asked = []
    for scene in SCENES:
        reasons = any("reasoning" in message for message in scene.messages)
        if (scene.tools and "tools" not in read) or not scene.kwargs.keys() <= read:
            continue
        if reasons and b"reasoning" not in text:
            continue
        if scene.name == _NO_TOOLS and "tools" in read:
            continue
        on = dict.fromkeys(read.intersection(_SWITCHES), True) if reasons else {}
        messages = tuple(with_content_as(message, content_format) for message in scene.messages)
        asked.append(scene._replace(messages=messages, kwargs={**scene.kwargs, **on}))
    return tuple(asked)


def judge_scenes(asked: Sequence[Conversation], render: Render) -> tuple[CaseOutcome, ...]:
    """Render all that conversations need with one call, and judge each."""
    cuts = ((one, *cut) for one in asked for cut in _cuts(one))
    begun = ((one._replace(messages=one.messages[:end]), prompted) for one, end, prompted in cuts)
    parts = [one._replace(add_generation_prompt=prompted) for one, prompted in begun]
    prompts = iter(render(parts))
    return tuple(_judge(one, {cut: next(prompts) for cut in _cuts(one)}) for one in asked)


def _steps(conversation: Conversation) -> Iterator[tuple[int, int]]:
    """Yield where an answer of the assistant is that something follows, and where the next one is.

    Of a long chat the last alone: what the others cost the cache, short ones show.
    """
    answers = [i for i, one in enumerate(conversation.messages) if one["role"] == "assistant"]
    if conversation.name == _LONG:
        answers = answers[-1:]
    for at, after in zip(answers, [*answers[1:], len(conversation.messages)], strict=True):
        if after > at + 1:
            yield at, after


def _cuts(conversation: Conversation) -> tuple[Cut, ...]:
    """Return what has to be rendered to judge a conversation, each once, the whole of it last."""
    steps = _steps(conversation)
    by_step = (((at, True), (at, False), (at + 1, False), (after, True)) for at, after in steps)
    cuts = dict.fromkeys(cut for of_step in by_step for cut in of_step)
    whole = len(conversation.messages), True
    return (*(cut for cut in cuts if cut != whole), whole)


def _judge(conversation: Conversation, rendered: Mapping[Cut, Rendered]) -> CaseOutcome:
    """Hold the prompts of a conversation, one for each of ``_cuts``, against each other."""
    whole = rendered[len(conversation.messages), True]
    failed = next((one for one in rendered.values() if one.prompt is None), None)
    if failed is not None:
        # A refusal is heard by the client; only what everybody sends must not be refused.
        heard = failed.refused and conversation.name not in _PLAIN
        level = Level.NOTE if heard else Level.ERROR
        message = failed.error or ""
        refused = Finding(FindingCode.NOT_RENDERED, message, line=failed.line, level=level)
        return CaseOutcome(conversation, whole, (refused,))
    prompts = {cut: one.prompt or "" for cut, one in rendered.items()}
    lost = [said for said in _required_texts(conversation) if said[1] not in (whole.prompt or "")]
    findings: list[Finding] = []
    if lost:
        what = f"{lost[0][0]} {lost[0][1]!r:.{_LONGEST}}"
        more = f" and {len(lost) - 1} more of its texts are" if lost[1:] else " is"
        findings.append(Finding(FindingCode.CONTENT_LOST, f"{what}{more} not in the prompt"))
    else:
        findings += _form_findings(conversation, prompts, whole.prompt or "")
    turns = kept_turns = total = kept = 0
    for at, after in _steps(conversation):
        asked, without, told = prompts[at, True], prompts[at, False], prompts[at + 1, False]
        wanted = reusable_prefix(conversation.messages[at], asked, without, told)
        then = prompts[after, True]
        same = len(_common_prefix(wanted, then))
        if same < len(wanted) and turns == kept_turns:
            message = f"turn {turns + 1}: {len(wanted) - same:,} of {len(wanted):,} characters change in the next prompt: {wanted[same : same + _SHOWN]!r} becomes {then[same : same + _SHOWN]!r}"
            level = Level.NOTE if conversation.name == _RARE else Level.ERROR
            findings.append(Finding(FindingCode.CACHE_LOST, message, level=level))
        turns, kept_turns = turns + 1, kept_turns + (same == len(wanted))
        total, kept = total + len(wanted.encode()), kept + len(wanted[:same].encode())
    return CaseOutcome(conversation, whole, tuple(findings), turns, kept_turns, total, kept)


def _form_findings(
    conversation: Conversation, prompts: Mapping[Cut, str], whole: str
) -> Iterator[Finding]:
    """Yield what keeps a model from telling who speaks, what it can call and whose turn it is, though all texts are there."""
    for tool in conversation.tools or ():
        if (name := tool["function"]["name"]) not in prompts[1, True]:
            message = f"the tool {name!r}, which the model may call, is not in the prompt"
            yield Finding(FindingCode.CONTENT_LOST, message)
    for turn in conversation.messages:
        for what, text in _texts(turn):
            if what == "argument" and whole.count(text) > 1:
                message = f"the prompt repeats the argument {text!r} of a tool call: it is there {whole.count(text)} times"
                yield Finding(FindingCode.WRITTEN_TWICE, message)
    if conversation.name != _PLAIN[0]:
        return
    between = []
    rest = whole
    for turn in conversation.messages:
        (_, text), *_ = _texts(turn)
        before, _, rest = rest.partition(text)
        between.append(before.strip())
    if between[1] == between[2]:
        message = f"{between[1][:_SHOWN]!r} comes before both answers and questions, so nothing marks who speaks"
        yield Finding(FindingCode.ROLES_ALIKE, message)
    (_, answer), *_ = _texts(conversation.messages[1])
    begun, history = prompts[1, True], prompts[2, False]
    head = history.removeprefix(begun).partition(answer)[0].strip()
    if begun == prompts[1, False] and head and history.startswith(begun):
        message = f"each answer in the history begins with {head[:_SHOWN]!r}, but the prompt does not end with this text"
        yield Finding(FindingCode.ANSWER_NOT_BEGUN, message)


def reusable_prefix(message: Message, prompt: str, without: str, history: str) -> str:
    """Return what the next prompt can begin with: to the end of what the answer says.

    Where the model was to reason and none came back, or the template makes up that it did not, the
    client has not sent back what it got: then only what was before the answer counts.
    """
    begun = len(_common_prefix(prompt, without))
    reasoned = "reasoning" in message
    if not reasoned and _OPENED.search(prompt, begun):
        return prompt[:begun]
    if not history.startswith(prompt):
        return prompt
    places = [(history.rfind(text), text) for _, text in _texts(message) if text in history]
    made_up = history[len(prompt) : min((at for at, _ in places), default=None)]
    if not reasoned and _REASONING.search(made_up):
        return prompt[:begun]
    return history[: max([len(prompt), *(at + len(text) for at, text in places)])]


def _common_prefix(first: str, other: str) -> str:
    return os.path.commonprefix([first, other])  # noqa: RUF071  (letters are meant)


def _required_texts(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Yield all that must not be lost, and what it is: not reasoning, as all of it belongs to answered questions."""
    for message in conversation.messages:
        for what, text in _texts(message):
            if what != "reasoning":
                yield _WORDS.get(what, _WORDS[message["role"]]), text


def _texts(message: Message) -> Iterator[tuple[str, str]]:
    content: Any = message["content"]
    for text in [content] if isinstance(content, str) else [part["text"] for part in content]:
        if text:
            yield "content", text
    if "reasoning" in message:
        yield "reasoning", message["reasoning"]
    for call in message.get("tool_calls", ()):
        yield "call", call["function"]["name"]
        for value in call["function"]["arguments"].values():
            if isinstance(value, str):
                yield "argument", value


def with_content_as(message: Message, content_format: str) -> Message:
    """Return a message with its content as vLLM hands it to templates of a format."""
    content = message["content"]
    if content_format != OPENAI or not content:
        return message
    return message | {"content": [{"type": "text", "text": content}]}
