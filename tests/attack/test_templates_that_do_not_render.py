"""Chat templates that render nothing, lose everything or never end: none of them is passed as fine."""

from __future__ import annotations

import pytest
from lowering import lower

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.templates import rendering
from vllm_mods.templates.check import TemplateChecked, check
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import Template

_TURNS = "{% for m in messages %}<turn>{{ m.role }} {{ m.content }}</turn>{% endfor %}"
SNAPSHOT = f"/hub/models--o--colbert/snapshots/{'a' * 40}/chat_template.jinja"
_ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def _check(text: str | bytes) -> TemplateChecked:
    data = text if isinstance(text, bytes) else text.encode()
    return check(Template("t", "t.jinja", data), ())


def _errors(checked: TemplateChecked) -> set[FindingCode]:
    return {finding.code for finding in checked.every if finding.level == "error"}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ raise_exception('no') }}", "no"),
        ("{{ [raise_exception('no'), 'query', 'document'] }}", "no"),
        ("{{ tool.parameters.words }}", "'tool' is undefined"),
        ("{{ '\\ud800' }}", "UnicodeEncodeError"),
        ("{{ 'x' * 10**10 }}", "MemoryError"),
        pytest.param("{{ 'x' * 2 * 10**7 }}", "16,777,216 letters", marks=pytest.mark.slow),
        ("{% for i in range(10**12) %}{{ i }}{% endfor %}", "OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        (_TURNS + "{{ 1 // 0 if add_generation_prompt }}", "ZeroDivisionError"),
        (_TURNS + "{{ raise_exception('no') if add_generation_prompt }}", "no"),
        (_TURNS + "{{ 1 // 0 if not add_generation_prompt }}", "ZeroDivisionError"),
        (_TURNS + "{{ 1 // 0 if messages|length == 1 }}", "ZeroDivisionError"),
        (_TURNS + "{{ raise_exception('no') if messages|length == 1 }}", "no"),
        (_TURNS + "{{ 1 // 0 if messages[0].role == 'system' }}<end>", "ZeroDivisionError"),
    ],
)
def test_a_template_that_fails_where_every_chat_begins_is_refused(text: str, message: str) -> None:
    checked = _check(text)
    assert not checked.ok
    assert _errors(checked) >= {FindingCode.NOT_RENDERED}
    assert FindingCode.NO_CHAT not in {finding.code for finding in checked.every}
    assert any(message in finding.message for finding in checked.every)


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "hello <|end|>",
        "{{ ['query', 'document'] }}",
        _TURNS.replace("m in messages", "m in messages if m.role != 'user'"),
        _TURNS.replace("m in messages", "m in messages if m.role in ['query', 'tool']"),
        "{{ messages|length }}",
        "{% if messages|length > 1 %}{{ raise_exception('one') }}{% endif %}hello",
        _TURNS.replace("m.content", "m.content[:3]") + "<|end|>",
        # what shows in long chats and in texts of several lines alone
        _TURNS.replace("m in messages", "m in messages[-8:]"),
        _TURNS.replace("m in messages", "m in messages[-20:]"),
        _TURNS.replace("m.content", "m.content[:1000]"),
        _TURNS.replace("m.content", "m.content.split('\\n')[0]"),
        _TURNS.replace("m.content", "m.content|e"),
        _TURNS.replace("m.content", "m.content|striptags"),
        _TURNS.replace("m.content", "m.content|replace('\\n\\n', '\\n')"),
        _TURNS.replace("m.content", "m.content.encode('ascii', 'ignore').decode()"),
        _TURNS.replace("m.content", "m.content|wordwrap(60)"),
    ],
)  # fmt: skip
def test_a_template_that_loses_what_users_say_is_refused(text: str) -> None:
    checked = _check(text)
    assert not checked.ok
    assert _errors(checked) & {FindingCode.CONTENT_LOST, FindingCode.NOT_RENDERED}


@pytest.mark.parametrize("data", [b"\xff", b" " * (100 << 20)])
def test_what_is_no_text_of_a_template_is_refused(data: bytes) -> None:
    assert [finding.code for finding in _check(data).findings] == ["template-unreadable"]


@pytest.mark.slow
@pytest.mark.started
def test_a_template_that_never_ends_is_refused_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "TEMPLATE_SECONDS", 1)
    checked = _check(_ENDLESS + _TURNS)
    assert _errors(checked) == {FindingCode.NOT_RENDERED}
    messages = [finding.message for finding in checked.every]
    assert "it takes more than 1 seconds" in messages


def test_all_prompts_together_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PROMPT", 1000)
    asked = [Conversation(str(n), ({"role": "user", "content": "hi"},)) for n in range(3)]
    answer = rendering.render(Template("t", "t.jinja", b"{{ 'x' * 400 }}"), asked)
    assert [one.prompt is not None for one in answer.rendered] == [True, True, False]
    assert "1,000 letters" in str(answer.rendered[2].error)
    assert not answer.rendered[2].refused


@pytest.mark.slow
@pytest.mark.parametrize(
    "refusal",
    [
        "{{ raise_exception('midway') if messages[1:]|selectattr('role', 'eq', 'system')|list }}",
        "{{ raise_exception('no system') if messages[0].role == 'system' }}",
    ],
)
def test_a_refusal_of_what_few_send_is_no_fault(refusal: str) -> None:
    checked = _check(refusal + _TURNS + "{{ '<turn>assistant ' if add_generation_prompt }}")
    assert checked.ok
    assert FindingCode.NOT_RENDERED in {finding.code for finding in checked.every}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "{% for r in ['query', 'document'] %}{{ (messages|selectattr('role', 'eq', r)|first).content }}{% endfor %}",
        "{{ raise_exception('one at a time') if messages|length > 1 }}{{ messages[0].content }}",
        _TURNS + "<|end|>",
    ],
)
def test_only_its_name_makes_a_template_one_for_something_else(text: str) -> None:
    assert not _check(text).ok
    for path in ("/m/Qwen3-Reranker-8B/chat_template.jinja", "embedding.jinja", SNAPSHOT):
        checked = check(Template("t", path, text.encode()), ())
        assert checked.ok
        (finding,) = checked.findings
        assert finding.code == "no-chat"
        assert "only the conversations beside" in finding.message


def test_a_template_that_reads_a_query_and_documents_is_told_so() -> None:
    (finding,) = _check("{{ query }}{{ documents }}").findings
    assert finding.code == "no-chat"
    assert "the template reads documents, query but not `messages`" in finding.message
