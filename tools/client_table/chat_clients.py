"""The requests that clients send, and what a release makes of them: ``sandbox`` is started and asked.

``clients/README.md`` says what is in a client's file.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.templates import parser_process, replay
from vllm_mods.templates.conversation import Message

SANDBOX = "client_table.sandbox"
INSTALL = "pip install -e '.[test]'"
_PACKAGES = ("vllm/renderers/chat_utils",)
_MODULES = (
    "vllm/entrypoints/anthropic/protocol.py",
    "vllm/entrypoints/anthropic/serving.py",
    "vllm/entrypoints/chat_utils.py",
    "vllm/entrypoints/constants.py",
    "vllm/entrypoints/openai/responses/protocol.py",
    "vllm/entrypoints/openai/responses/utils.py",
    "vllm/renderers/__init__.py",
    "vllm/renderers/chat_utils.py",
    "vllm/renderers/params.py",
    "vllm/tool_parsers/utils.py",
    "vllm/utils/import_utils.py",
    *parser_process.MODULES,
)
"""What is run of a release; anything else of it is stood in for."""


class Turn(NamedTuple):
    """The body of a request, and the model's answer to it as vLLM hands it over; the last has none."""

    body: dict[str, Any]
    answer: Message | None


class ChatClient(NamedTuple):
    """A client, by the name of its file; ``effort`` is what it asks for, if it asks."""

    name: str
    title: str
    endpoint: str
    effort: str | None
    turns: tuple[Turn, ...]


class Taken(NamedTuple):
    """What a template gets of a request; or in which words it is ``refused``, or why that is ``unknown``."""

    messages: tuple[Message, ...] = ()
    tools: tuple[Any, ...] | None = None
    kwargs: Mapping[str, Any] = {}
    refused: str | None = None
    unknown: str | None = None


@functools.cache
def clients() -> tuple[ChatClient, ...]:
    """Return the clients whose requests are known, by their names."""
    folder = files(__package__).joinpath("clients")
    named = sorted(file.name for file in folder.iterdir() if file.name.endswith(".json"))
    return tuple(
        _client(name.removesuffix(".json"), json.loads(folder.joinpath(name).read_bytes()))
        for name in named
    )


def _client(name: str, about: Mapping[str, Any]) -> ChatClient:
    """Put the requests of a client together: each has what was sent before, and what its turn adds."""
    field = "input" if about["endpoint"] == "/v1/responses" else "messages"
    sent: list[Any] = []
    turns = []
    for number, turn in enumerate(about["turns"], 1):
        sent = [*sent, *turn["add"]]
        body = {**about["request"], field: sent}
        body = json.loads(json.dumps(body).replace("{turn}", str(number)))
        turns.append(Turn(body, replay.message_of(turn["answer"]) if "answer" in turn else None))
    return ChatClient(name, about["title"], about["endpoint"], about.get("effort"), tuple(turns))


def take(tree: Tree, jobs: Sequence[Mapping[str, Any]]) -> list[Taken]:
    """Have a release's own code take requests, fenced in.

    Each has an ``endpoint``, its ``body``, and the ``template`` and ``content_format`` of the server.
    Raises ``TreeError`` for a tree without the code, ``UsageError`` if what it needs is not installed.
    """
    sources = parser_process.read_sources(tree, _PACKAGES, _MODULES)
    for name, texts in (("chat_utils", sources), ("build_chat_params", sources.values())):
        if not any(name in text for text in texts):
            raise TreeError(
                f"{tree.spec}: it has no `{name}` of vLLM, by which requests are turned into messages; so it cannot be asked about clients",
                hint="name vLLM 0.17 or newer: --vllm '>=0.17'",
            )
    missing, answers = parser_process.run(SANDBOX, sources, jobs, len(jobs))
    if missing:
        raise UsageError(f"vLLM's endpoints need {', '.join(missing)}", hint=INSTALL)
    return [_read_taken(answer) for answer in answers]


def _read_taken(answer: Mapping[str, Any]) -> Taken:
    """Return an answer in its expected shape: the process may write anything."""
    match answer:
        case {"refused": str(words)}:
            return Taken(refused=words)
        case {"messages": list(messages), "tools": list() | None as tools, "kwargs": dict(kwargs)}:
            offered = None if tools is None else tuple(tools)
            return Taken(tuple(messages), offered, kwargs)
        case _:
            return Taken(unknown=str(answer.get("error", "it gives no reason")))
