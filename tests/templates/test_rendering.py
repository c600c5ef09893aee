"""What a chat template can and cannot do: prompts as vLLM makes them, within limits, and nothing else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from lowering import lower

from vllm_mods.base.errors import NotRendered
from vllm_mods.templates import rendering
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.sandbox import environment
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.templates.rendering import RenderAnswer

HELLO = Conversation("hello", ({"role": "user", "content": "hi"},))


def _render(text: str, *conversations: Conversation) -> RenderAnswer:
    return rendering.render(Template("t", "t.jinja", text.encode()), conversations or (HELLO,))


def _prompt(text: str, *conversations: Conversation) -> str | None:
    return _render(text, *conversations).rendered[0].prompt


def _error(text: str) -> str:
    (found,) = _render(text).rendered
    assert found.prompt is None
    assert found.error is not None
    return found.error


def test_a_prompt_is_made_of_what_the_template_gets() -> None:
    text = "{{ messages[0].content }} {{ tools|tojson }} {{ add_generation_prompt }} {{ x }} {{ documents }}"
    asked = HELLO._replace(tools=({"name": "ö"},), kwargs={"x": 1}, add_generation_prompt=False)
    assert _prompt(text, asked) == 'hi [{"name": "ö"}] False 1 None'


def test_blocks_are_trimmed_as_transformers_does() -> None:
    assert _prompt("  {% if true %}\na\n  {% endif %}\nb\n") == "a\nb"


def test_generation_marks_and_loop_controls_are_known() -> None:
    text = "{% generation %}{% for m in messages %}a{% break %}{% endfor %}{% endgeneration %}"
    assert _prompt(text) == "a"


@pytest.mark.slow
@pytest.mark.started
def test_the_date_is_today_in_the_callers_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-14")
    before = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 14 * 3600))
    assert _prompt("{{ strftime_now('%Y-%m-%d') }}") in {
        before,
        time.strftime("%Y-%m-%d", time.gmtime(time.time() + 14 * 3600)),
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(environment().filters))
def test_every_filter_is_there(name: str) -> None:
    """Some import something when they are first called, and by then nothing can be opened."""
    arguments = {
        "attr": "('x')", "batch": "(2)", "groupby": "('a')", "map": "('upper')|list", "slice": "(2)|list",
        "replace": "('a', 'b')", "format": "()", "wordwrap": "(3)", "truncate": "(4)",
    }  # fmt: skip
    values = {
        "dictsort": "{'a': 1}", "items": "{'a': 1}", "xmlattr": "{'a': 1}", "groupby": "[{'a': 1}]",
        "urlencode": "'a b'", "sum": "[1]", "abs": "1", "round": "1.5", "filesizeformat": "1",
    }  # fmt: skip
    text = f"{{{{ {values.get(name, repr('ab cd'))}|{name}{arguments.get(name, '')} }}}}"
    (found,) = _render(text).rendered
    assert found.prompt is not None, found.error


def test_lipsum_is_there() -> None:
    assert _prompt("{{ lipsum(1, html=false)|length > 1 }}") == "True"


def test_what_it_reads_and_what_vllm_takes_it_for() -> None:
    answer = _render(
        "{% for m in messages %}{% for c in m.content %}{{ x }}{% endfor %}{% endfor %}"
    )
    assert answer.variables == ("messages", "x")
    assert answer.formats == (("0.15", "openai"),)


# ---- errors are of the template, with its line ---------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        ("a\n{{ raise_exception('no tools') }}", "no tools", 2),
        ("a\n\n{{ messages[0].content.items() }}", "'str object' has no attribute 'items'", 3),
        ("{% macro f(x) %}\n{{ 1 // x }}{% endmacro %}\n{{ f(0) }}", "ZeroDivisionError: ", 2),
        ("{{ '\\ud800' }}", "UnicodeEncodeError: ", None),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError: ", 1),
    ],
)
def test_what_fails_says_where(text: str, error: str, line: int | None) -> None:
    (found,) = _render(text).rendered
    assert found.prompt is None
    assert found.error is not None
    assert error in found.error
    assert found.line == line


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\n{% if %}", r"t\.jinja:2: Expected an expression"),
        (b"{% for m in messages %}", r"t\.jinja:1: Unexpected end of template"),
        (b"\xff", r"t\.jinja: not UTF-8: byte 0"),
        (b" " * (1 << 20) + b"a", r"t\.jinja: a template can have at most 1 MiB"),
        (b"{% include 'x' %}{% if %}", r"t\.jinja:1: Expected"),
        (b"{% if no %}\n{{ no | nope }}{% endif %}", r"t\.jinja:2: No filter named 'nope'\.$"),
        (b"{% if no %}\n{{ no is nope }}{% endif %}", r"t\.jinja:2: No test named 'nope'\.$"),
        (
            b"{{ " + b"(" * 5000 + b"1" + b")" * 5000 + b" }}",
            r"t\.jinja: .*(Recursion|MemoryError|died)",
        ),
    ],
)
def test_what_is_no_template_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(NotRendered, match=message):
        rendering.render(Template("t", "t.jinja", data), (HELLO,))


def test_a_template_may_ask_whether_there_is_a_filter() -> None:
    (rendered,) = _render("{% if 'nope' is filter %}{{ 1 | nope }}{% endif %}a").rendered
    assert rendered.prompt == "a"


def test_one_that_fails_for_a_conversation_goes_on_with_the_next() -> None:
    text = "{{ messages[0].content + 'a' }}"
    answer = _render(text, HELLO, HELLO._replace(messages=({"content": 1},)), HELLO)
    assert [one.prompt for one in answer.rendered] == ["hia", None, "hia"]


def test_a_conversation_that_is_nested_too_deeply_is_refused() -> None:
    deep: list[object] = []
    for _ in range(900):
        deep = [deep]
    with pytest.raises(NotRendered, match=r"hello: it is nested too deeply"):
        _render("a", HELLO._replace(kwargs={"x": deep}))
    with pytest.raises(NotRendered, match=r"hello: it is nested too deeply"):
        _render("a", HELLO._replace(messages=({"role": "user", "content": deep},)))


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.started
def test_endless_computing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "TEMPLATE_SECONDS", 1)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    text = "{% if messages[0].content == 'go' %}" + loop + "{% endif %}done"
    go = HELLO._replace(messages=({"role": "user", "content": "go"},))
    answer = _render(text, HELLO, go, HELLO)
    assert [one.prompt for one in answer.rendered] == ["done", None, None]
    assert [one.error for one in answer.rendered][1:] == [
        "it takes more than 1 seconds",
        "not tried again",
    ]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.started
@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 4000000000 }}",
        "{% set ns = namespace(a='a') %}{% for i in range(64) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{{ range(999999999) }}",
        "{{ 'a'.ljust(3000000000) }}",
        "{{ '%9999999999d' % 1 }}",
    ],
)
def test_memory_is_limited(text: str) -> None:
    error = _error(text)
    assert any(word in error for word in ("Memory", "memory", "Overflow", "too big", "died"))


@pytest.mark.slow
def test_a_prompt_has_an_end() -> None:
    assert "16,777,216 letters" in _error("{{ 'a' * 20000000 }}")


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.started
@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('touch x') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
    ],
)
def test_it_reaches_nothing_but_its_arguments(text: str) -> None:
    (found,) = _render(text).rendered
    assert not found.prompt  # what is unsafe is undefined, and that is printed as nothing


@pytest.mark.parametrize(
    "text", ["{% include '/etc/passwd' %}", "{% import 'x' as x %}", "{% extends 'x' %}"]
)
def test_it_can_name_no_other_template(text: str) -> None:
    assert "no loader" in _error(text)


def test_a_fault_of_the_sandbox_is_a_bug_and_not_the_templates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_sandbox.py").write_text("raise SystemError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rendering, "SANDBOX", "broken_sandbox")
    with pytest.raises(RuntimeError, match="broken"):
        _render("a")
