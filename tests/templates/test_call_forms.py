"""In which form a model writes its calls."""

from __future__ import annotations

import pytest

from vllm_mods.templates.call_forms import (
    JSON,
    XML,
    CallForm,
    form_of_name,
    form_of_template,
    reasoning_parser_of,
)
from vllm_mods.templates.source import Template

HEAD = "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.content }}"
CALLS = "{% for c in m.tool_calls %}<tool_call>\n"
END = "</tool_call>{% endfor %}{% endfor %}"
AS_XML = "<function={{ c.function.name }}>\n{{ c.function.arguments }}</function>"
AS_JSON = '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (HEAD + CALLS + AS_XML + END, XML),
        (HEAD + CALLS + AS_JSON + END, JSON),
        (HEAD + CALLS + "[{{ c.function.name }}(1)]" + END, None),
        ("<tool_call>\n<function=look_up>" + HEAD + "{% endfor %}", None),
        (HEAD + "{% endfor %}", None),
        ("{{ raise_exception('no') }}", None),
    ],
)
def test_the_template_shows_in_which_form_calls_are_written(
    text: str, form: CallForm | None
) -> None:
    assert form_of_template(Template("x.jinja", "/x.jinja", text.encode())) is form


@pytest.mark.parametrize(
    ("model", "form", "parser"),
    [
        ("Qwen/Qwen3.6-35B-A3B", XML, "qwen3"),
        ("/models/qwen3.5-122b/", XML, "qwen3"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", XML, None),
        ("Qwen/Qwen3-8B", JSON, None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", JSON, None),
        ("Qwen/Qwen2.5-7B-Instruct", JSON, None),
        ("Qwen3.6/llama", None, None),
        ("Qwen/Qwen3-VL-8B", None, None),
        ("Qwen/Qwen3-Embedding-8B", None, None),
        ("m", None, None),
    ],
)
def test_models_of_some_names_are_known_for_a_form(
    model: str, form: CallForm | None, parser: str | None
) -> None:
    assert (form_of_name(model), reasoning_parser_of(model)) == (form, parser)


def test_a_parser_reads_one_form() -> None:
    assert not set(XML.readers) & set(JSON.readers)
