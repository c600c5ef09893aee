"""Texts as a model wrote them go through a release's parsers and come back byte for byte, or it is said where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from model_texts import ModelTexts, TextsBack, send_back
from toy_release import TEMPLATE, toy_release

from vllm_mods.base.errors import UsageError
from vllm_mods.templates import parser_process
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


def back_of(texts: dict[str, str], template: bytes = TEMPLATE) -> TextsBack:
    release = parser_process.open_release(toy_release())
    return send_back(
        ModelTexts(texts, TOOLS), release, ("toy", "toy"), Template("t", "t.jinja", template)
    )


@pytest.mark.slow
def test_what_the_parsers_and_the_template_keep_comes_back_byte_for_byte() -> None:
    back = back_of(KEPT)
    assert back.kept == {"whole": 4, "1": 4, "3": 4}
    assert back.lost == ()


def test_what_does_not_come_back_is_shown_where_it_begins_to_differ() -> None:
    texts = {
        "otherwise": 'Hm.</think><call>look_up {"word":"a"}</call>',
        "no arguments": "Hm.</think><call>look_up</call>",
    }
    back = back_of(texts)
    assert back.kept == {"whole": 0, "1": 0, "3": 0}
    first, second = back.lost
    assert first.startswith('otherwise: \'"a"}</call>\' is \' "a"}</call>')
    assert second.startswith("no arguments: '</call>' is ' {}</call>")


def test_a_template_that_trims_loses_what_was_trimmed() -> None:
    trimming = TEMPLATE.replace(b"{{- m.content }}", b"{{- m.content | trim }}")
    back = back_of({"blanks": "Hm.</think>Well.  "}, trimming)
    assert [lost.partition(":")[0] for lost in back.lost] == ["blanks"]


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
        messages = back_of(texts, refusing + TEMPLATE).lost
    assert messages[0].startswith("a if streamed token by token: 'll.' is ")
    assert messages[1:] == ("b: it fails", "c: the template rejects the parsed answer")


def test_a_template_without_a_prompt_for_them_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="no prompt: never"):
        back_of({"a": "b"}, b"{{ raise_exception('never') }}")


def test_a_parser_that_the_release_does_not_have_is_a_wrong_call() -> None:
    release = parser_process.open_release(toy_release())
    with pytest.raises(UsageError, match="--tool-call-parser other"):
        send_back(ModelTexts({"a": "b"}), release, ("other", "toy"), Template("t", "t", TEMPLATE))
