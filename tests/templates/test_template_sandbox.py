"""What templates find in the sandbox, in both engines: functions, filters, variables; and what is said when they fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower
from toy_release import toy_release

from vllm_mods.base.errors import NotRendered, TreeError
from vllm_mods.templates import parser_process, rendering
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vllm_mods.templates.rendering import RenderAnswer, Rendered

HELLO = Conversation("hello", ({"role": "user", "content": "hi"},))
VALUE = {"b": ["ö", 1], "a": None}


def _render(
    text: str, *jobs: Conversation, tokens: tuple[tuple[str, str], ...] = (), **how: Any
) -> RenderAnswer:
    template = Template("t", "t.jinja", text.encode(), tokens=tokens)
    return rendering.render(template, jobs or (HELLO,), **how)


def _both(text: str, **kwargs: Any) -> tuple[str | None, str | None]:
    """Return what both engines make of it, with ``v`` to write."""
    job = HELLO._replace(kwargs={"v": VALUE, **kwargs})
    first, second = (_render(text, job, rust=rust).rendered[0] for rust in (False, True))
    return first.prompt, second.prompt


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("{{ v|tojson }}", '{"b": ["ö", 1], "a": null}'),
        ("{{ v|tojson(ensure_ascii=true) }}", '{"b": ["\\u00f6", 1], "a": null}'),
        ("{{ v|tojson(sort_keys=true) }}", '{"a": null, "b": ["ö", 1]}'),
        ("{{ v|tojson(separators=[',', ':']) }}", '{"b":["ö",1],"a":null}'),
        ("{{ v|tojson(indent=1) }}", '{\n "b": [\n  "ö",\n  1\n ],\n "a": null\n}'),
        ("a\n  {% if true %}\nb{% endif %}\nc", "a\nbc"),
        ("{%- generation -%} a {%- endgeneration -%} b", "ab"),
        ("{%+ generation +%}a{% endgeneration %}", "a"),
        ("{{ documents is none or documents is undefined }}", None),
        ("{{ 'a'.upper() }}{{ v.items()|length }}", "A2"),
        ("{{ add_generation_prompt }}", None),
        ("{{ messages[0].content }}", "hi"),
    ],
)
def test_both_engines_render_it_alike(text: str, prompt: str | None) -> None:
    first, second = _both(text)
    if prompt is not None:
        assert first == prompt
    assert (first or "").lower() == (second or "").lower()


def test_the_rust_frontend_strips_a_file_and_leaves_out_what_is_none() -> None:
    assert _both(" a ") == (" a ", "a")
    assert _both("{{ documents is defined }}") == ("True", "False")
    assert _both("{{ v is defined }}", v=None) == ("True", "False")


def test_what_a_job_states_goes_over_what_every_template_gets() -> None:
    job = HELLO._replace(kwargs={"documents": [1], "bos_token": "own"}, tools=({"a": 1},))
    tokens = (("bos_token", "<s>"), ("eos_token", "</s>"))
    text = "{{ documents }}{{ bos_token }}{{ eos_token }}{{ tools }}{{ add_generation_prompt }}"
    assert (
        _render(text, job, tokens=tokens, marked=True).rendered[0].prompt
        == "[1]own</s>[{'a': 1}]True"
    )


def test_time_goes_by_with_every_message_only_where_it_is_to() -> None:
    jobs = [HELLO._replace(messages=HELLO.messages * count) for count in (1, 2, 60)]
    text = "{{ strftime_now('%H:%M:%S') }}"
    assert [one.prompt for one in _render(text, *jobs, later=True).rendered] == [
        "12:01:01",
        "12:02:02",
        "13:01:00",
    ]
    assert [one.prompt for one in _render(text, *jobs, later=True, rust=True).rendered] == [
        "12:01:01",
        "12:02:02",
        "13:01:00",
    ]


@pytest.mark.parametrize(
    ("text", "variables", "arguments"),
    [
        ("{{ a }}{% set b = 1 %}{{ b }}", "a", "a"),
        ("{% if x %}{% set b = 1 %}{% endif %}{{ b }}", "b x", "x"),
        ("{% if b is not defined %}{% set b = 1 %}{% endif %}{{ b }}", "b", "b"),
        ("{% if x %}{% set b = b|default(1) %}{% endif %}{{ b }}", "b x", "b x"),
        ("{% if b is none %}{% set b = 1 %}{% endif %}{{ b }}", "b", "b"),
        ("{% if b is undefined %}{% set b = 1 %}{% endif %}{{ b }}", "b", "b"),
        ("{% if b is string %}{% set b = 1 %}{% endif %}{{ b }}", "b", ""),
        ("{% if b|upper %}{% set b = 1 %}{% endif %}{{ b }}", "b", ""),
        (
            "{% macro m(b) %}{{ b is defined }}{% endmacro %}{% if m(1) %}{% set b = 1 %}{% endif %}{{ b }}",
            "b",
            "",
        ),
        (
            "{% macro m(c) %}{{ b is defined }}{% endmacro %}{% if m(1) %}{% set b = 1 %}{% endif %}{{ b }}",
            "b",
            "b",
        ),
    ],
)
def test_which_variables_are_arguments(text: str, variables: str, arguments: str) -> None:
    answer = _render(text)
    assert answer.variables == tuple(variables.split())
    assert answer.arguments == tuple(arguments.split())


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("a\n{{ raise_exception('no') }}", (None, "no", 2, True)),
        ("{{ 1 / 0 }}", (None, "ZeroDivisionError: division by zero", 1, False)),
        ("{{ x.y.z }}", (None, "'x' is undefined", 1, False)),
        ("{{ messages.append(1) }}", (None, None, 1, False)),
        ("{{ raise_exception('x' * 3000) }}", (None, "x" * 2000, 1, True)),
        ("{{ raise_exception('\\ud800') }}", (None, "?", 1, True)),
        ("{{ '\\ud800' }}", (None, None, None, False)),
    ],
)
def test_a_template_that_fails_says_what_where_and_whether_it_refuses(
    text: str, rendered: tuple[Any, ...]
) -> None:
    prompt, error, line, refused = _render(text).rendered[0]
    assert (prompt, rendered[1] and error, line, refused) == rendered


@pytest.mark.parametrize(
    ("text", "error", "line"),
    [
        (
            "a\n\n{{ 'a'.partition('b') }}",
            "unknown method: string has no method named partition (in :3)",
            3,
        ),
        ("{{ 1 // 0 }}", "invalid operation: unable to calculate 1 // 0 (in :1)", 1),
    ],
)
def test_minijinja_says_what_and_where_on_one_line(text: str, error: str, line: int) -> None:
    (rendered,) = _render(text, rust=True).rendered
    assert (rendered.error, rendered.line, rendered.refused) == (error, line, False)


def test_a_refusal_of_the_template_is_one_in_the_rust_frontend_too() -> None:
    (rendered,) = _render("a\n{{ raise_exception('no') }}", rust=True).rendered
    assert (rendered.prompt, rendered.error, rendered.refused) == (None, "no", True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\n{% if %}", "t.jinja:2: Expected an expression, got 'end of statement block'"),
        (b"a\xff", "t.jinja: not UTF-8: byte 1"),
    ],
)
def test_what_is_no_template_says_why(data: bytes, message: str) -> None:
    with pytest.raises(NotRendered) as caught:
        rendering.render(Template("t", "t.jinja", data), (HELLO,))
    assert caught.value.message == message
    assert rendering.place("t", None) == "t"


def _letters(counts: Mapping[str, int]) -> list[Rendered]:
    jobs = [HELLO._replace(kwargs={"n": count}) for count in counts.values()]
    return list(_render("{{ 'é' * n }}", *jobs).rendered)


def test_prompts_have_so_many_letters_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PROMPT", 100)
    counts = {"half": 60, "too much": 41, "the rest": 40, "one more": 1}
    prompts = [len(one.prompt) if one.prompt is not None else one.error for one in _letters(counts)]
    refused = "its prompts have more than 100 letters"
    assert prompts == [60, refused, 40, refused]


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ("os.kill(os.getpid(), 11)", "the process that ran it died of SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "it takes more than 20 seconds"),
        ("os.kill(os.getpid(), 24)", "it takes more than 20 seconds"),
        ("raise MemoryError", "it needs more than 1 GiB of memory"),
        ("sys.exit(0)", "it ended too early"),
    ],
)
def test_how_the_process_ended_is_the_answer_of_the_first_and_the_others_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str, error: str
) -> None:
    lines = '{"missing": []}\n{"variables": ["a", "b"], "own": ["b"], "formats": [["0.15", "string"]]}\n{"prompt": "p"}\n5'
    text = f"import os, sys\ndef main():\n    print({lines!r}, flush=True)\n    {ends}\n"
    (tmp_path / "ending.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rendering, "SANDBOX", "ending")
    answer = _render("x", HELLO, HELLO, HELLO, HELLO)
    assert [one.error for one in answer.rendered] == [None, None, error, "not tried again"]
    assert answer[:3] == (("a", "b"), ("a",), (("0.15", "string"),))
    (tmp_path / "ending.py").write_text(f"import os, sys\ndef main():\n    {ends}\n")
    with pytest.raises(NotRendered) as caught:
        _render("x")
    assert caught.value.message == f"t.jinja: {error}"


def test_a_prompt_is_no_refusal() -> None:
    assert _render("{{ messages[0].content }}").rendered == (rendering.Rendered("hi"),)


@pytest.mark.slow
def test_a_process_that_does_nothing_at_all_has_an_end_by_the_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sleeping.py").write_text("import time\ndef main(): time.sleep(60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rendering, "_PATIENCE", 0.05)
    for module, limit in ((rendering, "TEMPLATE_SECONDS"), (parser_process, "PARSER_SECONDS")):
        monkeypatch.setattr(module, "SANDBOX", "sleeping")
        lower(monkeypatch, limit, 1)
    with pytest.raises(NotRendered, match=r"it takes more than 1 seconds"):
        _render("x")
    with pytest.raises(TreeError, match=r"it takes more than 1 seconds"):
        parser_process.open_release(toy_release())
