"""What becomes of a client's requests with a template on a release: whether it works, and what is lost first."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from client_table import chat_clients
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Level
from vllm_mods.base.tree import Tree
from vllm_mods.templates import reading_back, rendering, replay
from vllm_mods.templates.client_table import ClientVerdict
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.parser_process import ReleaseParsers
from vllm_mods.templates.rendering import Rendered
from vllm_mods.templates.source import Template

_MARK = re.compile(r"mark-([a-z-]*[a-z])")
"""What has to be in a prompt of a request: each of its texts has such a word, which says what it is."""
_EFFORT = "reasoning_effort"


_ORDER = tuple(ClientVerdict)
_WORKS = (ClientVerdict.WORKS, "")


class ClientAnswer(NamedTuple):
    """What ``subject`` is to expect of a template, and why it is not all: a client by its name, or the flags of parsers."""

    template: str
    subject: str
    verdict: ClientVerdict
    why: str = ""


def ask_parsers(template: Template, release: ReleaseParsers) -> Iterator[ClientAnswer]:
    """Yield how the parsers that a template is meant for read its answers on a release: nothing of one that names none."""
    about = template.about
    if about is None or about.tool_call_parser is None:
        return
    formats = rendering.render(template, ()).formats
    for tool in (about.tool_call_parser, *about.other_tool_call_parsers):
        flags = {"--tool-call-parser": tool, "--reasoning-parser": about.reasoning_parser}
        subject = " ".join(f"{flag} {name}" for flag, name in flags.items() if name)
        answer = ClientAnswer(template.name, subject, ClientVerdict.WORKS)
        try:
            back = reading_back.read_back(
                release,
                lambda jobs: rendering.render(template, jobs).rendered,
                formats,
                (tool, about.reasoning_parser),
                with_tools=True,
            )
        except (UsageError, TreeError) as error:
            is_absent = isinstance(error, UsageError)
            verdict = ClientVerdict.REFUSED if is_absent else ClientVerdict.UNKNOWN
            why = "the release has no such parser" if is_absent else error.message
            yield answer._replace(verdict=verdict, why=why)
            continue
        findings = [finding for pair_read in back.pairs for finding in pair_read.findings]
        heavy = [one for one in findings if one.level is Level.ERROR] or findings
        why = heavy[0].message.partition(", e.g. ")[0] if heavy else ""
        verdict = ClientVerdict.WORKS if back.ok else ClientVerdict.LOST
        yield answer._replace(verdict=verdict, why=why)


def ask(
    templates: Sequence[Template], clients: Sequence[chat_clients.ChatClient], tree: Tree
) -> Iterator[ClientAnswer]:
    """Yield what each client is to expect of each template on the vLLM of a tree.

    Raises as ``chat_clients.take`` does, and ``NotRendered`` for what is no template.
    """
    heads = [rendering.render(one, ()) for one in templates]
    formats = [rendering.format_on(head.formats, tree.version) for head in heads]
    jobs = [
        {
            "endpoint": client.endpoint,
            "body": turn.body,
            "template": template.data.decode(),
            "content_format": content_format,
        }
        for template, content_format in zip(templates, formats, strict=True)
        for client in clients
        for turn in client.turns
    ]
    taken = iter(chat_clients.take(tree, jobs))
    for template, head, content_format in zip(templates, heads, formats, strict=True):
        by_client = [(client, [next(taken) for _ in client.turns]) for client in clients]
        parts = [
            part
            for client, requests in by_client
            for turn, request in zip(client.turns, requests, strict=True)
            for part in _conversations(request, turn, content_format)
        ]
        rendered = iter(rendering.render(template, parts).rendered)
        for client, requests in by_client:
            asked = [(one, next(rendered), next(rendered), next(rendered)) for one in requests]
            found = [*_findings(client, asked, reads_effort=_EFFORT in head.variables), _WORKS]
            verdict, why = max(found, key=lambda one: _ORDER.index(one[0]))
            yield ClientAnswer(template.name, client.name, verdict, why)


def _conversations(
    request: chat_clients.Taken, turn: chat_clients.Turn, content_format: str
) -> tuple[Conversation, ...]:
    """Return what to render of a turn: the prompt, the same without a beginning of the answer, and with the answer behind it."""
    kwargs = {
        name: value for name, value in request.kwargs.items() if name != "add_generation_prompt"
    }
    prompt = Conversation("", request.messages, request.tools, kwargs)
    answer = replay.with_content_as(turn.answer, content_format) if turn.answer else {}
    history = (*request.messages, answer) if answer else request.messages
    without = prompt._replace(add_generation_prompt=False)
    return prompt, without, without._replace(messages=history)


def _findings(
    client: chat_clients.ChatClient,
    asked: Sequence[tuple[chat_clients.Taken, Rendered, Rendered, Rendered]],
    *,
    reads_effort: bool,
) -> Iterator[tuple[ClientVerdict, str]]:
    """Yield what happens in a client's turns, each of which was rendered as ``_conversations`` has it."""
    wanted = ""
    for number, (turn, one) in enumerate(zip(client.turns, asked, strict=True), 1):
        taken, rendered, without, history = one
        where = f"turn {number}"
        if taken.unknown is not None:
            yield ClientVerdict.UNKNOWN, f"{where}: {taken.unknown}"
            return
        if taken.refused is not None or rendered.prompt is None:
            yield ClientVerdict.REFUSED, f"{where}: {taken.refused or rendered.error}"
            return
        prompt = rendered.prompt
        for mark in dict.fromkeys(_MARK.findall(json.dumps(turn.body))):
            if not re.search(rf"mark-{mark}(?![a-z-])", prompt):
                what = mark.replace("-", " ")
                yield ClientVerdict.LOST, f"{where}: the {what} is not in the prompt"
        if client.effort and reads_effort and taken.kwargs.get(_EFFORT) != client.effort:
            what = f"the effort {client.effort!r} does not reach the template"
            yield ClientVerdict.LOST, f"{where}: {what}"
        if not prompt.startswith(wanted):
            what = f"the prompt does not begin with that of turn {number - 1} and its answer"
            yield ClientVerdict.CACHE_LOST, f"{where}: {what}"
        if turn.answer is not None:
            sides = (without.prompt or "", history.prompt or "")
            wanted = replay.reusable_prefix(turn.answer, prompt, *sides)
