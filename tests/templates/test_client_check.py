"""What clients send is taken by a release's own code, and the first thing that is refused or lost is said."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from client_table import asking, chat_clients
from client_table.chat_clients import ChatClient, Turn
from memory_tree import MemoryTree
from toy_endpoints import ANTHROPIC, CHAT, PARSING, SERVING, toy_endpoints

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.templates import parser_process, replay
from vllm_mods.templates.client_table import ClientVerdict
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from vllm_mods.base.tree import Tree

pytestmark = pytest.mark.slow

_CHAT, _MESSAGES, _RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
_PARSING = "vllm/entrypoints/chat_utils.py"
_PROTOCOL = "vllm/entrypoints/openai/chat_completion/protocol.py"
_SERVING = "vllm/entrypoints/anthropic/serving.py"
_PLAIN = b"""
{{- reasoning_effort }}{{ tools }}
{%- for m in messages %}
{{- '<' ~ m.role ~ '>' }}
{%- if m.role == 'assistant' %}{{ (m.reasoning or '') ~ '</think>' }}{% endif %}
{{- m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function.name ~ call.function.arguments.word }}{% endfor %}
{{- '<end>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}
"""
_GUARDED = (
    b"{% if messages[1:]|selectattr('role', 'eq', 'system')|list %}{{ raise_exception('No.') }}{% endif %}"
    + _PLAIN
)
_ANSWER = replay.assistant_message("It is mark-answer.", "So mark-reasoning.")
_QUESTION = {"role": "user", "content": "mark-question"}
_BACK = {"role": "assistant", "content": "It is mark-answer.", "reasoning": "So mark-reasoning."}
_NEXT = {"role": "user", "content": "mark-next"}


def _client(endpoint: str, *bodies: dict[str, Any], effort: str | None = None) -> ChatClient:
    """Return a client whose requests are these, with an answer to all but the last."""
    answers = [*[_ANSWER] * (len(bodies) - 1), None]
    turns = (
        Turn({"model": "m", **body}, answer) for body, answer in zip(bodies, answers, strict=True)
    )
    return ChatClient("toy", "Toy", endpoint, effort, tuple(turns))


def _chat(*more: Any, **given: Any) -> ChatClient:
    first = {"messages": [_QUESTION]}
    return _client(_CHAT, first, {"messages": [_QUESTION, *(more or (_BACK,)), _NEXT]}, **given)


def _verdict(
    client: ChatClient, tree: Tree | None = None, text: bytes = _PLAIN
) -> tuple[ClientVerdict, str]:
    template = Template("t", "t.jinja", text)
    (answer,) = asking.ask([template], [client], tree or toy_endpoints())
    assert (answer.template, answer.subject) == ("t", "toy")
    return answer.verdict, answer.why


def test_what_comes_back_whole_works() -> None:
    assert _verdict(_chat()) == (ClientVerdict.WORKS, "")


def test_a_request_that_the_release_refuses_is_refused_in_its_words() -> None:
    client = _client(_MESSAGES, {"system": "s", "messages": [{"role": "tool", "content": "c"}]})
    verdict, why = _verdict(client)
    assert (verdict, why) == (
        ClientVerdict.REFUSED,
        "turn 1: messages.0.role: Input should be 'user', 'assistant' or 'system'",
    )


def test_of_many_forms_of_an_item_the_nearest_says_what_is_wrong() -> None:
    """Pydantic says of each form why an item is none of it."""
    item = {"type": "reasoning", "content": "c"}
    verdict, why = _verdict(_client(_RESPONSES, {"input": [item]}))
    assert (verdict, why) == (ClientVerdict.REFUSED, "turn 1: input.0.Thought.id: Field required")


def test_what_the_template_refuses_is_refused_too() -> None:
    client = _client(_CHAT, {"messages": [_QUESTION, {"role": "system", "content": "s"}]})
    assert _verdict(client, text=_GUARDED) == (ClientVerdict.REFUSED, "turn 1: No.")


def test_a_text_that_is_not_in_the_prompt_is_lost_and_named() -> None:
    client = _client(_CHAT, {"messages": [_QUESTION], "tools": [{"type": "a mark-tool"}]})
    ignoring = "from typing import ClassVar" + CHAT.replace(
        "tools: list[Tool] | None", "tools: ClassVar"
    )
    verdict, why = _verdict(client, toy_endpoints(**{_PROTOCOL: ignoring}))
    assert (verdict, why) == (ClientVerdict.LOST, "turn 1: the tool is not in the prompt")


def test_reasoning_under_a_name_that_the_release_does_not_read_is_lost() -> None:
    other = {**_BACK, "reasoning_content": _BACK["reasoning"]}
    del other["reasoning"]
    verdict, why = _verdict(_chat(other))
    assert (verdict, why) == (ClientVerdict.LOST, "turn 2: the reasoning is not in the prompt")


def test_an_effort_that_does_not_reach_a_template_that_reads_it_is_lost() -> None:
    body = {"messages": [_QUESTION], "reasoning_effort": "high"}
    client = _client(_CHAT, body, effort="high")
    assert _verdict(client) == (ClientVerdict.WORKS, "")
    deaf = toy_endpoints(**{_PROTOCOL: CHAT.replace("self.reasoning_effort", "None")})
    verdict, why = _verdict(client, deaf)
    assert (verdict, why) == (
        ClientVerdict.LOST,
        "turn 1: the effort 'high' does not reach the template",
    )
    unread = _PLAIN.replace(b"{{- reasoning_effort }}", b"")
    assert _verdict(client, deaf, unread) == (ClientVerdict.WORKS, "")


def test_a_client_that_does_not_send_reasoning_back_loses_the_cache() -> None:
    verdict, why = _verdict(_chat({"role": "assistant", "content": "It is mark-answer."}))
    assert verdict is ClientVerdict.CACHE_LOST
    assert why == "turn 2: the prompt does not begin with that of turn 1 and its answer"


def _inline() -> ChatClient:
    """A system message comes with the second question, as Claude Code sends it."""
    told = [{"role": "assistant", "content": "It is mark-answer."}, _NEXT]
    inline = {"role": "system", "content": "mark-inline"}
    client = _client(
        _MESSAGES,
        {"system": "mark-system.", "messages": [_QUESTION]},
        {"system": "mark-system.", "messages": [_QUESTION, *told, inline]},
    )
    plain = replay.assistant_message("It is mark-answer.")
    return client._replace(turns=(client.turns[0]._replace(answer=plain), client.turns[1]))


def test_the_cache_is_kept_where_a_template_takes_system_messages_midway_and_lost_where_they_are_merged() -> (
    None
):
    """The release's own probe decides: what a template with a guard raises has it merge them into the first."""
    assert _verdict(_inline()) == (ClientVerdict.WORKS, "")
    verdict, why = _verdict(_inline(), text=_GUARDED)
    assert (verdict, why[:6]) == (ClientVerdict.CACHE_LOST, "turn 2")


def test_a_probe_that_there_is_not_yet_is_not_made_up() -> None:
    before, _, after = SERVING.partition("    @staticmethod")
    old = before + "    @classmethod" + after.partition("    @classmethod")[2]
    assert _verdict(_inline(), toy_endpoints(**{_SERVING: old}), _PLAIN) == (
        ClientVerdict.WORKS,
        "",
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vllm/entrypoints/anthropic/protocol.py": ""}, "No module named"),
        ({_SERVING: SERVING.replace("to_chat_completion_request", "another")}, "StopIteration"),
        ({_SERVING: SERVING.replace("first = request.system", "first = OpenAIServingChat.x()")}, "whether OpenAIServingChat.x is true"),
        (
            {"vllm/entrypoints/anthropic/protocol.py": "from vllm.far import Far\n" + ANTHROPIC.replace("system: str", "system: Far")},
            "whether 'mark-system.' is valid",
        ),
        ({_PARSING: PARSING.replace("conversation = []", "config.hf_config")}, "AttributeError"),
        ({_PARSING: PARSING.replace("return conversation", "return {1, 2}")}, "not JSON serializable"),
        ({_PARSING: PARSING.replace("return conversation", "import far; isinstance(config, far.Far)\n    return conversation")}, "is a Far"),
        (
            {_SERVING: SERVING.replace("first = request.system", "first = OpenAIServingChat.x()"), _PROTOCOL: CHAT.replace("list[dict]", "list[dict[str, str]]")},
            "is not JSON serializable",
        ),
        ({_PARSING: "text = open('/etc/hostname').read()"}, "PermissionError"),
        ({_PARSING: "import os\nos.fork()"}, "PermissionError"),
    ],
    ids=["endpoint", "function", "stand-in", "type", "config", "set", "class", "value", "file", "program"],
)  # fmt: skip
def test_what_cannot_be_run_is_not_known_and_never_an_answer(
    changed: dict[str, str], words: str
) -> None:
    verdict, why = _verdict(_inline(), toy_endpoints(**changed))
    assert verdict is ClientVerdict.UNKNOWN
    assert words in why


@pytest.mark.parametrize("place", ["chat_utils.py", "chat_utils/__init__.py"])
def test_messages_are_parsed_wherever_the_release_does(place: str) -> None:
    tree = toy_endpoints(**{_PARSING: "", f"vllm/renderers/{place}": PARSING})
    assert _verdict(_chat(), tree) == (ClientVerdict.WORKS, "")


def test_the_worst_of_all_turns_counts() -> None:
    """A lost cache in turn 2, and a lost text in turn 3."""
    lost = {"role": "assistant", "content": "It is mark-answer."}
    other = {"role": "assistant", "content": "", "reasoning_content": "mark-other"}
    client = _client(
        _CHAT,
        {"messages": [_QUESTION]},
        {"messages": [_QUESTION, lost, _NEXT]},
        {"messages": [_QUESTION, lost, _NEXT, other, _NEXT]},
    )
    assert _verdict(client) == (ClientVerdict.LOST, "turn 3: the other is not in the prompt")


def test_a_tree_without_the_code_is_refused_and_so_is_a_machine_without_the_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(TreeError, match="it has no `chat_utils`"):
        _verdict(_chat(), toy_endpoints(**{_PARSING: ""}))
    files = toy_endpoints().files.items()
    old = {path: data.replace(b"build_chat_params", b"other") for path, data in files}
    with pytest.raises(TreeError, match="it has no `build_chat_params` of vLLM"):
        _verdict(_chat(), MemoryTree(old, version="0.15.0"))

    def without(*_: object) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        return ("openai",), [{"error": "none"}]

    monkeypatch.setattr(parser_process, "run", without)
    with pytest.raises(UsageError, match="vLLM's endpoints need openai"):
        _verdict(_chat())


def test_a_process_that_dies_leaves_what_it_was_asked_unknown() -> None:
    dying = PARSING.replace("import json", "import json, os\nos._exit(1)")
    verdict, why = _verdict(_chat(), toy_endpoints(**{_PARSING: dying}))
    assert (verdict, "ended too early" in why) == (ClientVerdict.UNKNOWN, True)


# --- the bundled requests


@pytest.mark.parametrize("client", chat_clients.clients(), ids=lambda one: one.name)
def test_a_client_sends_all_that_was_sent_before_and_its_answers_come_back(
    client: ChatClient,
) -> None:
    field = "input" if client.endpoint == _RESPONSES else "messages"
    about = json.loads(files("client_table").joinpath(f"clients/{client.name}.json").read_bytes())
    assert set(about) <= {"title", "endpoint", "effort", "sources", "request", "turns"}
    assert about["sources"]
    assert client.turns[-1].answer is None
    for turn, after in zip(client.turns, client.turns[1:], strict=False):
        assert after.body[field][: len(turn.body[field])] == turn.body[field]
        sent = json.dumps(after.body[field][len(turn.body[field]) :])
        assert turn.answer is not None
        wanted = [
            turn.answer["content"],
            *(json.dumps(call["function"]["name"]) for call in turn.answer.get("tool_calls", ())),
        ]
        assert all(one in sent for one in wanted)
        assert turn.answer["reasoning"] in sent


def test_of_each_kind_of_request_there_is_one() -> None:
    sent = {
        one.name: json.dumps([turn.body for turn in one.turns]) for one in chat_clients.clients()
    }
    assert list(sent) == [
        "claude-code",
        "cline",
        "codex",
        "openai-chat",
        "openai-responses",
        "opencode",
    ]
    assert '"role": "system", "content": "These skills' in sent["claude-code"]
    assert all('"developer"' in sent[name] for name in ("codex", "openai-chat", "openai-responses"))
    assert all('"reasoning_content"' in sent[name] for name in ("opencode", "cline"))
    assert all('"stream": true' in one for one in sent.values())
    assert all(f"cch=0000{turn}" in sent["claude-code"] for turn in (1, 2, 3, 4))
