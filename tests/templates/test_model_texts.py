"""Texts as a model wrote them go through a release's parsers and come back byte for byte, or it is said where not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from toy_release import TEMPLATE, toy_release

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.report import template as report
from vllm_mods.templates import parser_process
from vllm_mods.templates.check import TemplateChecked, check
from vllm_mods.templates.model_texts import ModelTexts, TextsBack, read
from vllm_mods.templates.parser_process import ReadingJob, ReleaseParsers
from vllm_mods.templates.replay import tool
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOLS = (tool("look_up", word="string"),)
KEPT = {
    "an answer": "Hm.</think>An abacus.",
    "blanks at the edges": " Hm. </think>  An abacus. \n",
    "a call": 'Hm.</think>Well.<call>look_up {"word": "Öl \\"x\\"\\n"}</call>',
    "two calls": 'Hm.</think><call>look_up {"word": "a"}</call><call>look_up {"word": "b"}</call>',
}


def checked(texts: dict[str, str], template: bytes = TEMPLATE) -> TextsBack:
    release = parser_process.open_release(toy_release())
    asked = ModelTexts(texts, TOOLS)
    whole: TemplateChecked = check(
        Template("t", "t.jinja", template), (), release, ("toy", "toy"), asked
    )
    assert whole.texts is not None
    assert whole.ok == (not whole.texts.findings)
    return whole.texts


@pytest.mark.slow
def test_what_the_parsers_and_the_template_keep_comes_back_byte_for_byte() -> None:
    back = checked(KEPT)
    assert back.kept == {"whole": 4, "1": 4, "3": 4}
    assert back.findings == ()


def test_what_does_not_come_back_is_shown_where_it_begins_to_differ() -> None:
    texts = {
        "otherwise": 'Hm.</think><call>look_up {"word":"a"}</call>',
        "no arguments": "Hm.</think><call>look_up</call>",
    }
    back = checked(texts)
    assert back.kept == {"whole": 0, "1": 0, "3": 0}
    first, second = (finding.message for finding in back.findings)
    assert first.startswith('otherwise: \'"a"}</call>\' is \' "a"}</call>')
    assert second.startswith("no arguments: '</call>' is ' {}</call>")


def test_a_template_that_trims_loses_what_was_trimmed() -> None:
    trimming = TEMPLATE.replace(b"{{- m.content }}", b"{{- m.content | trim }}")
    back = checked({"blanks": "Hm.</think>Well.  "}, trimming)
    assert [finding.code for finding in back.findings] == ["answer-differs"]


def test_a_way_that_loses_alone_is_named_and_what_was_not_read_says_why() -> None:
    """Streamed by 1 the toy loses; a parser fails on its own word; a template takes no answer with another."""
    texts = {"a": "Hm.</think>Well.", "b": "Hm.</think>Fail.", "c": "Hm.</think>Never."}
    refusing = b"{% if 'Never.' in messages | string %}{{ raise_exception('no') }}{% endif %}"
    read = ReleaseParsers.read

    def reads(self: ReleaseParsers, jobs: Sequence[ReadingJob]) -> list[dict[str, Any]]:
        first, second, *others = read(self, jobs)
        failed = {way: {"error": "it fails", "stood_in": False} for way in second}
        return [{**first, "1": {**first["1"], "content": "We"}}, failed, *others]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReleaseParsers, "read", reads)
        messages = [finding.message for finding in checked(texts, refusing + TEMPLATE).findings]
    assert messages[0].startswith("a if streamed token by token: 'll.' is ")
    assert messages[1:] == ["b: it fails", "c: the template rejects the parsed answer"]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("[]", "expected an object"),
        ("{}", "texts: is required"),
        ('{"texts": {}}', "texts: there are none"),
        ('{"texts": {"a": 1}}', "texts.a: expected a string"),
        ('{"texts": {"a": "b"}, "tool": []}', "tool"),
        ("{", "not JSON"),
    ],
)
def test_what_is_wrong_with_the_texts(raw: str, problem: str) -> None:
    with pytest.raises(ManifestError) as raised:
        read(raw.encode(), "--answers")
    assert problem in "".join(raised.value.problems)


def test_texts_are_read_with_what_they_answer() -> None:
    raw = {"texts": {"a": "b"}, "tools": list(TOOLS), "kwargs": {"x": True}}
    assert read(json.dumps(raw).encode(), "f") == ModelTexts({"a": "b"}, TOOLS, {"x": True})


def test_a_template_without_a_prompt_for_them_is_refused_with_its_reason() -> None:
    with pytest.raises(ManifestError, match="no prompt: never"):
        checked({"a": "b"}, b"{{ raise_exception('never') }}")


def test_a_parser_that_the_release_does_not_have_is_a_wrong_call() -> None:
    release = parser_process.open_release(toy_release())
    with pytest.raises(UsageError, match="--tool-call-parser other"):
        check(
            Template("t", "t", TEMPLATE), (), release, ("other", None), ModelTexts({"a": "b"}, None)
        )


def test_the_answer_counts_them_and_its_sentence_says_so() -> None:
    lost = Finding(FindingCode.ANSWER_DIFFERS, "a")
    back = TextsBack(1, {"whole": 1, "1": 0, "3": 1}, (lost,))
    result = TemplateChecked(Template("t", "t", b""), None, ())._replace(texts=back)
    reply = report.checked([result])
    assert (
        "  1 text of a model, unchanged in the next prompt: 1 not streamed, 0 streamed token by token, 1 "
        in (reply.words or "")
    )
    (data,) = reply.data["templates"]
    assert (data["texts"]["texts"], data["texts"]["kept"]) == (1, {"whole": 1, "1": 0, "3": 1})
    assert (reply.ok, len(data["texts"]["findings"])) == (False, 1)
