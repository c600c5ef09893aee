"""Texts as a model wrote them: read by a release's parsers, sent back, and rendered into the next prompt.

A text is kept if the next prompt begins with the prompt, the very text, and what ends a turn. What a parser loses no
template gives back.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mods.templates import rendering, replay
from vllm_mods.templates.conversation import Conversation, Message
from vllm_mods.templates.parser_process import ReadingJob, ReleaseParsers
from vllm_mods.templates.reading_back import LIKELY, way_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.templates.source import Template

_QUESTION: Message = {"role": "user", "content": "Well?"}
_FURTHER: Message = {"role": "user", "content": "And?"}
_PLAIN = "It is an abacus."
_TAGS = ("<think>", "</think>")
_SHOWN = 60


class ModelTexts(NamedTuple):
    """Texts by their names, and what the request had that they answer."""

    texts: Mapping[str, str]
    tools: tuple[dict[str, Any], ...] | None = None
    kwargs: Mapping[str, Any] = {}


class TextsBack(NamedTuple):
    """How many texts were kept, by the ways in which they were read, and what became of the others."""

    kept: Mapping[str, int]
    lost: tuple[str, ...]


def send_back(
    asked: ModelTexts, release: ReleaseParsers, pair: tuple[str, str], template: Template
) -> TextsBack:
    """Have a pair of a release's parsers read each text, and render what was read into the next prompt.

    Raises ``UsageError`` for a parser that the release does not have, ``ValueError`` where there is no prompt.
    """
    release.require(*pair)
    render = functools.partial(rendering.render, template, marked=True, later=True)
    content_format = rendering.format_on(render(()).formats, release.version)

    def conversation(*messages: Message, begun: bool = True) -> Conversation:
        handed = tuple(replay.with_content_as(one, content_format) for one in messages)
        return Conversation("texts", handed, asked.tools, dict(asked.kwargs), begun)

    answered = (_QUESTION, replay.assistant_message(_PLAIN))
    first, plain = render([conversation(_QUESTION), conversation(*answered, begun=False)]).rendered
    if first.prompt is None or plain.prompt is None:
        raise ValueError(f"no prompt: {first.error or plain.error}")
    prompt, end = first.prompt, plain.prompt.rpartition(_PLAIN)[2]
    jobs = [
        ReadingJob(prompt, text, True, *pair, asked.tools or (), _TAGS, LIKELY)
        for text in asked.texts.values()
    ]
    answers = release.read(jobs)
    read_well = [one for by_way in answers for one in by_way.values() if "error" not in one]
    histories = iter(
        render(
            [conversation(_QUESTION, replay.message_of(one), _FURTHER) for one in read_well]
        ).rendered
    )
    kept = dict.fromkeys(LIKELY, 0)
    all_lost = []
    for (name, text), by_way in zip(asked.texts.items(), answers, strict=True):
        lost: dict[str, str] = {}
        for way, answer in by_way.items():
            history = None if "error" in answer else next(histories).prompt
            if history is None:
                lost[way] = answer.get("error", "the template rejects the parsed answer")
            elif history.startswith(prompt + text + end):
                kept[way] += 1
            else:
                lost[way] = _difference(text, history.removeprefix(prompt))
        if lost:
            where = "" if len(lost) == len(LIKELY) else f" if {' or '.join(map(way_name, lost))}"
            all_lost.append(f"{name}{where}: {next(iter(lost.values()))}")
    return TextsBack(kept, tuple(all_lost))


def _difference(text: str, came: str) -> str:
    same = len(os.path.commonprefix([text, came]))  # noqa: RUF071  (letters are meant)
    wrote, has = text[same : same + _SHOWN], came[same : same + _SHOWN]
    return f"{wrote!r} is {has!r} in the next prompt"
