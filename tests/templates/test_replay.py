"""What any template loses of a conversation and of the cache, and with which engine it renders."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.library.catalog import Library
from vllm_mods.templates.check import TemplateChecked, Weight, check, count_weights, weight
from vllm_mods.templates.rendering import Rendered
from vllm_mods.templates.replay import SCENES, CaseOutcome, judge_scenes, scenes
from vllm_mods.templates.source import Template, open_template

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from vllm_mods.templates.conversation import Conversation

TURN = "<{{ m.role }}>{{ m.reasoning_content }}{{ m.content }}{{ m.tool_calls|tojson if m.tool_calls }}</>"
WHOLE = (
    "{{ tools|tojson if tools }}{% for m in messages %}" + TURN + "{% endfor %}"
    "{{ '<assistant>' if add_generation_prompt }}"
)
"""Everything is written, and each turn as it was: nothing is lost."""


def _check(text: str) -> TemplateChecked:
    return check(Template("t", "t.jinja", text.encode()), ())


def _codes(found: TemplateChecked) -> dict[str, list[str]]:
    return {
        one.conversation.name: [finding.code for finding in one.findings]
        for one in found.replays
        if one.findings
    }


def _scene(found: TemplateChecked, name: str) -> CaseOutcome:
    (one,) = [replay for replay in found.replays if replay.conversation.name == name]
    return one


def test_a_template_that_writes_everything_loses_nothing() -> None:
    found = _check(WHOLE)
    assert found.ok
    assert _codes(found) == {}
    assert {one.conversation.name for one in found.replays} == {
        one.name
        for one in SCENES
        if "enable_thinking" not in one.kwargs and one.name != "chat-that-reasons"
    }
    assert all(one.turns and one.turns == one.turns_kept for one in found.replays)
    assert all(one.bytes == one.bytes_kept > 0 for one in found.replays)


@pytest.mark.parametrize(
    ("before", "after", "scene", "code"),
    [
        (
            "{{ m.content }}",
            "{{ m.content if m.role != 'system' }}",
            "system-message",
            "content-lost",
        ),
        ("{{ m.content }}", "{{ m.content if m.role != 'tool' }}", "agent", "content-lost"),
        ("{{ m.tool_calls|tojson if m.tool_calls }}", "", "agent", "content-lost"),
        (
            "m.tool_calls|tojson if m.tool_calls",
            "m.tool_calls[:1]|tojson if m.tool_calls",
            "parallel-calls",
            "content-lost",
        ),
        (
            "{{ m.reasoning_content }}",
            "{{ m.reasoning_content if loop.last }}",
            "agent-that-reasons",
            "cache-lost",
        ),
        ("{{ tools|tojson if tools }}", "{{ messages|length }}", "chat", "cache-lost"),
        (
            "{{ tools|tojson if tools }}",
            "{{ raise_exception('no tools') if tools }}",
            "agent",
            "not-rendered",
        ),
    ],
)
def test_what_is_lost_is_found_where_it_is_lost(
    before: str, after: str, scene: str, code: str
) -> None:
    assert before in WHOLE
    found = _check(WHOLE.replace(before, after))
    assert code in _codes(found)[scene]
    assert not found.ok


@pytest.mark.slow
def test_reasoning_of_answered_questions_may_go_but_costs_the_cache() -> None:
    last = "{{ m.reasoning_content if loop.index > ns.q }}"
    question = (
        "{% set ns = namespace(q=0) %}{% for m in messages if m.role == 'user' %}"
        "{% set ns.q = messages.index(m) %}{% endfor %}"
    )
    found = _scene(
        _check(question + WHOLE.replace("{{ m.reasoning_content }}", last)), "agent-that-reasons"
    )
    assert [one.code for one in found.findings] == ["cache-lost"]
    assert 0 < found.turns_kept < found.turns


@pytest.mark.slow
def test_a_refusal_of_what_few_clients_send_is_told_and_is_no_fault() -> None:
    refusing = "{% for m in messages[1:] if m.role == 'system' %}{{ raise_exception('midway') }}{% endfor %}"
    found = _check(refusing + WHOLE)
    assert found.ok
    (finding,) = _scene(found, "system-message-midway").findings
    assert (finding.code, finding.message, finding.level.value) == (
        "not-rendered",
        "midway",
        "note",
    )


@pytest.mark.slow
def test_a_refusal_of_a_system_message_is_told_and_a_crash_on_it_is_a_fault() -> None:
    refusing = "{{ raise_exception('no system') if messages[0].role == 'system' }}"
    assert _check(refusing + WHOLE).ok
    crashing = _check(refusing.replace("raise_exception('no system')", "none + 1") + WHOLE)
    assert not crashing.ok
    assert _codes(crashing) == {"system-message": ["not-rendered"]}


def test_each_prompt_of_a_conversation_is_rendered_once() -> None:
    asked: list[Conversation] = []

    def render(jobs: Sequence[Conversation]) -> list[Rendered]:
        asked.extend(jobs)
        return [Rendered("".join(one["content"] for one in job.messages)) for job in jobs]

    judge_scenes(SCENES, render)
    seen = [(job.name, len(job.messages), job.add_generation_prompt) for job in asked]
    assert len(seen) == len(set(seen))
    assert {("chat", 5, True), ("chat", 1, True), ("chat", 1, False)} <= set(seen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "opened", ["<think>", "<|channel>thought\\n", "[THINK]", "<|START_THINKING|>", "My thoughts:"]
)
def test_reasoning_that_the_client_dropped_is_no_loss_of_the_template(opened: str) -> None:
    opening = WHOLE.replace("'<assistant>'", f"'<assistant>{opened}'")
    assert _codes(_check(opening.replace("m.reasoning_content }}", "'' }}"))) == {}
    made_up = "{{ '<think></think>' if loop.last and m.role == 'assistant' }}"
    found = _check(WHOLE.replace("{{ m.reasoning_content }}", made_up))
    assert "chat" not in _codes(found)


@pytest.mark.slow
def test_an_end_that_only_a_closed_history_has_is_no_part_of_a_prompt() -> None:
    text = (
        WHOLE.replace("'<assistant>'", "'<assistant><think>'")
        + "{{ '<eos>' if not add_generation_prompt }}"
    )
    found = _check(text.replace("{{ m.reasoning_content }}", ""))
    assert _codes(found) == {}


@pytest.mark.slow
def test_a_template_is_asked_to_reason_where_it_has_a_switch_for_it() -> None:
    closed = (
        "{{ '<assistant>' if add_generation_prompt }}"
        "{{ '<think></think>' if add_generation_prompt and not enable_thinking }}"
    )
    found = _check(WHOLE.replace("{{ '<assistant>' if add_generation_prompt }}", closed))
    assert "agent-that-reasons" not in _codes(found)
    assert "thinking-off" in _codes(found)


def test_a_template_that_reads_no_reasoning_is_not_sent_any() -> None:
    found = _check(WHOLE.replace("{{ m.reasoning_content }}", ""))
    assert "agent-that-reasons" not in {one.conversation.name for one in found.replays}


TURNED = WHOLE.replace("<{{ m.role }}>", "<turn>")
NO_BEGIN = WHOLE.replace("{{ '<assistant>' if add_generation_prompt }}", "")
LLAMA = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("text", "scene", "code"),
    [
        # text beside a call
        (
            WHOLE.replace("{{ m.content }}", "{{ m.content if not m.tool_calls }}"),
            "text-beside-a-call",
            "content-lost",
        ),
        # tools that are read and never shown
        (
            WHOLE.replace("{{ tools|tojson if tools }}", "{{ 'call them' if tools }}"),
            "agent",
            "content-lost",
        ),
        (TURNED.replace("'<assistant>'", "'<turn>'"), "chat", "roles-alike"),
        (NO_BEGIN, "chat", "answer-not-begun"),
        (
            WHOLE.replace("m.tool_calls|tojson ", "(m.tool_calls|tojson) ~ m.tool_calls "),
            "agent",
            "written-twice",
        ),
        (
            WHOLE.replace("{{ tools|tojson if tools }}", "").replace(
                "{{ m.reasoning_content }}", "{{ m.reasoning_content if loop.last }}"
            ),
            "chat-that-reasons",
            "cache-lost",
        ),
    ],
)
def test_what_a_model_cannot_tell_is_found(text: str, scene: str, code: str) -> None:
    found = _check(text)
    assert code in _codes(found)[scene]
    assert not found.ok


def test_a_question_that_ends_as_an_answer_begins_has_begun_it() -> None:
    found = _check(LLAMA)
    assert _codes(found).keys() <= {"system-message", "system-message-midway"}


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kept"), [("%Y-%m-%d", True), ("%H:%M", False), ("%S", False)])
def test_a_template_that_tells_the_time_loses_the_cache_by_the_minute(
    form: str,
    kept: bool,  # noqa: FBT001
) -> None:
    found = _check(f"{{{{ strftime_now('{form}') }}}}" + WHOLE)
    assert found.ok == kept
    assert {one.code for one in found.every} == (set() if kept else {"cache-lost"})


@pytest.mark.slow
def test_what_is_lost_is_called_by_what_it_is() -> None:
    found = _check(WHOLE.replace("{{ m.content }}", "{{ m.content if m.role == 'user' }}"))
    told = [one.message for one in found.every if one.code == "content-lost"]
    assert told[0] == "the answer 'Then the saffron.' and 1 more of its texts are not in the prompt"
    assert "the system message 'Be quartz.' and 2 more of its texts are not in the prompt" in told


def test_findings_weigh_what_they_cost() -> None:
    found = _check(WHOLE.replace("{{ m.content }}", "{{ m.content if m.role != 'system' }}"))
    assert count_weights(found.every) == {
        Weight.REFUSED: 0,
        Weight.CONTENT: 2,
        Weight.CACHE: 0,
        Weight.STYLE: 0,
    }
    assert weight(Finding(FindingCode.RUST_FRONTEND, "")) is Weight.STYLE


def test_a_template_without_tools_is_not_chosen_calls() -> None:
    found = _check(WHOLE.replace("{{ tools|tojson if tools }}", ""))
    assert {one.conversation.name for one in found.replays} == {
        "chat",
        "system-message",
        "system-message-midway",
        "long-chat",
        "chat-that-reasons",
    }
    assert [one.code for one in found.findings] == ["no-tools"]


# ---- the engine of vLLM's Rust frontend --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "odd",
    [
        "{{ 'a-b'.partition('-')[0] }}",
        "{{ 'ab'.removeprefix('a') }}",
        "{{ dict([['a', 1]])|tojson }}",
        "{{ 'a\\\\nb' }}",  # the frontend makes a line end of each \n in a file
    ],
)
def test_what_minijinja_does_otherwise_is_said(odd: str) -> None:
    found = _check(odd + WHOLE)
    assert [one.code for one in found.findings] == ["rust-frontend"]
    assert found.ok


@pytest.mark.slow
def test_blocks_of_generation_are_known_to_both_engines() -> None:
    found = _check(
        WHOLE.replace("{{ m.content }}", "{%- generation -%}{{ m.content }}{% endgeneration %}")
    )
    assert found.findings == ()


# ---- what a model's tokenizer says -------------------------------------------------------------


@pytest.mark.slow
def test_special_tokens_come_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": {"content": "<s>"},
                "eos_token": "</s>",
                "pad_token": None,
                "chat_template": "config",
            }
        )
    )
    text = "{{ bos_token }}" + WHOLE
    (tmp_path / "chat_template.jinja").write_text(text)
    for named in (tmp_path, tmp_path / "chat_template.jinja"):
        opened = open_template(Library(), str(named))
        assert opened.tokens == (("bos_token", "<s>"), ("eos_token", "</s>"))
        assert opened.data.decode() == text
        assert check(opened, ()).findings == ()
    named = tmp_path / "tokenizer_config.json"
    assert open_template(Library(), str(named)).data == b"config"


def test_without_a_tokenizer_special_tokens_have_stand_ins_and_that_is_said() -> None:
    found = _check("{{ bos_token + '' }}" + WHOLE)
    assert [one.code for one in found.findings] == ["tokens-unknown"]
    assert found.ok


def test_what_a_template_sets_itself_is_no_argument_of_it() -> None:
    text = (
        "{% if messages %}{% set name = 1 %}{% endif %}{{ name }}"
        "{% if loud is not defined %}{% set loud = false %}{% endif %}{{ loud }}"
    )
    answer = _check(text + WHOLE).answer
    assert answer is not None
    assert {"name", "loud"} <= set(answer.variables)
    assert "loud" in answer.arguments
    assert "name" not in answer.arguments


# ---- what is said of each --------------------------------------------------------------------------


def _messages(text: str) -> list[str]:
    """Return what is said of the template, and of its conversations behind their names; notes with their word."""
    checked = _check(text)
    rows = [("", one) for one in checked.findings]
    rows += [(f"{r.conversation.name}: ", one) for r in checked.replays for one in r.findings]
    return [f"{'note: ' if f.level == 'note' else ''}{name}{f.message}" for name, f in rows]


@pytest.mark.parametrize(
    ("before", "after", "messages"),
    [
        (
            "{{ m.content }}",
            "{{ m.content if m.role != 'system' }}",
            [
                "system-message: the system message 'Be quartz.' is not in the prompt",
                "system-message-midway: the system message 'From now on be indigo.' is not in the prompt",
            ],
        ),
        (
            "{{ m.content }}",
            "{{ m.content if m.role != 'tool' }}",
            [
                "agent: the result 'a device of dolomite' and 2 more of its texts are not in the prompt",
                "agent-that-reasons: the result 'a device of dolomite' and 2 more of its texts are not in the prompt",
                "parallel-calls: the result 'a gas of zinc' and 1 more of its texts are not in the prompt",
                "text-beside-a-call: the result 'a stone of topaz' is not in the prompt",
            ],
        ),
        (
            "{{ m.tool_calls|tojson if m.tool_calls }}",
            "{{ m.tool_calls|map(attribute='id')|list if m.tool_calls }}",
            [
                "agent: the call with 'citadel' and 2 more of its texts are not in the prompt",
                "agent-that-reasons: the call with 'citadel' and 2 more of its texts are not in the prompt",
                "parallel-calls: the call with 'xenon' and 1 more of its texts are not in the prompt",
                "text-beside-a-call: the call with 'sienna' is not in the prompt",
            ],
        ),
        (
            "{{ m.reasoning_content }}",
            "{{ m.reasoning_content if loop.last }}",
            [
                (
                    "agent-that-reasons: turn 1: 125 of 331 characters change in the next prompt: "
                    '\'It is a basalt matter.[{"id": "call00001\' becomes '
                    '\'[{"id": "call00001", "type": "function",\''
                )
            ],
        ),
        (
            "{{ '<assistant>' if add_generation_prompt }}",
            "",
            [
                "chat: each answer in the history begins with '<assistant>', but the prompt does not end with this text"
            ],
        ),
        (
            "{{ tools|tojson if tools }}",
            "{{ 'call them' if tools }}",
            [
                f"{name}: the tool 'look_up', which the model may call, is not in the prompt"
                for name in ("agent", "agent-that-reasons", "parallel-calls", "text-beside-a-call")
            ],
        ),
        (
            "{{ tools|tojson if tools }}",
            "",
            ["note: it does not read `tools`, so the model sees no tools; calls were not tested"],
        ),
        (
            "m.tool_calls|tojson ",
            "(m.tool_calls|tojson) ~ m.tool_calls[1:] ",
            [
                "parallel-calls: the prompt repeats the argument 'yarrow' of a tool call: it is there 2 times"
            ],
        ),
    ],
)
def test_what_is_said(before: str, after: str, messages: list[str]) -> None:
    assert WHOLE.count(before) == 1
    assert _messages(WHOLE.replace(before, after)) == messages


def test_what_is_said_where_nothing_tells_who_speaks() -> None:
    assert _messages(TURNED.replace("'<assistant>'", "'<turn>'")) == [
        "chat: '</><turn>' comes before both answers and questions, so nothing marks who speaks"
    ]


@pytest.mark.slow
def test_what_is_lost_of_the_cache_is_counted_in_turns_and_bytes() -> None:
    checked = _check(WHOLE.replace("{{ tools|tojson if tools }}", "{{ messages|length }}é"))
    counts = {
        r.conversation.name: (r.turns, r.turns_kept, r.bytes, r.bytes_kept) for r in checked.replays
    }
    assert counts == {
        "chat": (2, 0, 134, 0),
        "system-message": (2, 0, 176, 0),
        "chat-that-reasons": (2, 0, 136, 0),
        "system-message-midway": (2, 0, 154, 0),
        "long-chat": (1, 0, 632, 1),
    }
    (finding,) = _scene(checked, "system-message-midway").findings
    assert (finding.code, finding.level.value) == ("cache-lost", "note")
    assert _messages(WHOLE.replace("{{ tools|tojson if tools }}", "{{ messages|length }}"))[1] == (
        "chat: turn 1: 37 of 37 characters change in the next prompt: '1<user>First the raven.</><assistant>' becomes "
        "'3<user>First the raven.</><assistant>The'"
    )


def test_only_the_first_turn_that_is_lost_is_told() -> None:
    late = "{{ messages|length if messages|length > 3 else 'x' }}"
    checked = _check(WHOLE.replace("{{ tools|tojson if tools }}", late))
    replay = _scene(checked, "chat")
    assert [one.message.partition(":")[0] for one in replay.findings] == ["turn 2"]
    assert (replay.turns, replay.turns_kept) == (2, 1)


@pytest.mark.slow
def test_a_prompt_that_fails_says_where_and_counts_nothing() -> None:
    replay = _scene(_check("\n{{ 1 // 0 }}" + WHOLE), "chat")
    (finding,) = replay.findings
    assert (finding.line, finding.level.value) == (2, "error")
    assert finding.message.startswith("ZeroDivisionError: ")
    assert replay[3:] == (0, 0, 0, 0)
    (refused,) = _scene(_check("{{ raise_exception('no') }}" + WHOLE), "chat").findings
    assert (refused.message, refused.level.value) == ("no", "error")


@pytest.mark.slow
def test_content_is_handed_over_as_the_release_takes_the_template() -> None:
    parts = "{% for part in m.content %}{{ part.text if part.text else part }}{% endfor %}"
    assert _messages(WHOLE.replace("{{ m.content }}", parts)) == []
    only_texts = "{% for part in m.content %}{{ part.text }}{% endfor %}"
    lost = _messages(WHOLE.replace("{{ m.content }}", only_texts))
    assert lost == []


@pytest.mark.parametrize(
    ("variables", "text", "names"),
    [
        ((), "", "chat system-message system-message-midway long-chat"),
        (
            ("tools",),
            "",
            "chat system-message agent parallel-calls text-beside-a-call system-message-midway long-chat",
        ),
        ((), "reasoning", "chat system-message chat-that-reasons system-message-midway long-chat"),
        (
            ("enable_thinking",),
            "",
            "chat system-message thinking-off system-message-midway long-chat",
        ),
    ],
)
def test_a_template_is_asked_what_it_reads(
    variables: tuple[str, ...], text: str, names: str
) -> None:
    chosen = scenes(variables, "string", text.encode())
    assert [one.name for one in chosen] == names.split()


def test_switches_are_on_where_there_is_reasoning_and_content_is_in_parts_where_wanted() -> None:
    read = ("tools", "enable_thinking", "thinking", "other")
    by_name = {one.name: one for one in scenes(read, "openai", b"reasoning_content")}
    assert by_name["agent-that-reasons"].kwargs == {"enable_thinking": True, "thinking": True}
    assert by_name["chat"].kwargs == {}
    assert by_name["thinking-off"].kwargs == {"enable_thinking": False}
    assert by_name["chat"].messages[0]["content"] == [{"type": "text", "text": "First the raven."}]
    assert by_name["agent"].messages[1]["content"] == ""


# ---- the engines, the tokens and the file's name ---------------------------------------------------


@pytest.mark.slow
def test_what_is_said_of_the_other_engine() -> None:
    odd = "{% if messages|length == 5 %}{{ messages[0].content.removeprefix('a') }}{% endif %}"
    (finding,) = _check("{{ '' }}\n" + odd + WHOLE).findings
    assert finding.message == (
        "with VLLM_USE_RUST_FRONTEND=1 (minijinja) 2 of 8 conversations are rendered differently. The first is chat: "
        "unknown method: string has no method named removeprefix (in :2)"
    )
    assert (finding.line, finding.level.value) == (2, "note")
    (other,) = _check("{{ 'a\\\\nb' }}" + WHOLE).findings
    assert other.message.endswith(
        "8 of 8 conversations are rendered differently. The first is chat: the prompt is different"
    )
    assert other.line is None


@pytest.mark.slow
def test_the_tokens_that_stand_in_are_named_and_those_that_are_given_are_not() -> None:
    text = "{{ bos_token ~ eos_token }}" + WHOLE
    (finding,) = _check(text).findings
    assert finding.message == (
        "bos_token, eos_token: the model's tokenizer sets these values, but it was not found; "
        "give the model's folder as TEMPLATE"
    )
    given = check(Template("t", "t.jinja", text.encode(), tokens=(("bos_token", "<s>"),)), ())
    assert [one.message.partition(":")[0] for one in given.findings] == ["eos_token"]
    assert (given.prompts["chat"].prompt or "").startswith("<s><eos_token><user>")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/a/b/model/chat.jinja", None),
        ("/a/my-rerank/chat.jinja", "my-rerank"),
        ("/a/my-Embed/colbert.jinja", "colbert.jinja"),
        ("/a/frank/chat.jinja", None),
        ("/a/model2vec/x.jinja", "model2vec"),
        ("/reward/model/chat.jinja", None),
        (f"/models--o--guard/snapshots/{'0f' * 20}/chat.jinja", "models--o--guard"),
        (f"/models--o--guard/snapshots/{'0f' * 19}/chat.jinja", None),
        ("/retrieval.jinja", "retrieval.jinja"),
    ],
)
def test_what_a_template_is_for_by_the_name_of_its_file_or_folder(
    path: str, why: str | None
) -> None:
    checked = check(Template("t", path, WHOLE.encode()), ())
    message = (
        f"{why} has a name for ranking, embedding or judging: only the "
        "conversations beside the template were tested"
    )
    assert [one.message for one in checked.findings] == ([message] if why else [])
    assert bool(checked.replays) is (why is None)


@pytest.mark.slow
def test_what_ranks_reads_no_messages() -> None:
    checked = _check("{{ query }}{{ document }}{{ passage }}")
    (finding,) = checked.findings
    assert finding.message.startswith(
        "the template reads document, passage, query but not `messages`: "
    )
    assert finding.level.value == "note"
    assert "no-chat" not in {one.code for one in _check("{{ query }}" + WHOLE).findings}
