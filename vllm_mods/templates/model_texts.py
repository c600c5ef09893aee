r"""Texts as a model wrote them: read by a release's parsers, sent back, and rendered into the next prompt.

A text is kept if the next prompt begins with the prompt, the very text, and what ends a turn. What a parser loses no
template gives back. They stand in a JSON object::

    {"texts": {"a name": "Hm.\n</think>\n\nYes."}, "tools": […], "kwargs": {…}}
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.formats.schema import decode, object_of
from vllm_mods.templates import replay
from vllm_mods.templates.conversation import Conversation, Message
from vllm_mods.templates.parser_process import ReadingJob, ReleaseParsers
from vllm_mods.templates.reading_back import LIKELY, ParserPair, way_name
from vllm_mods.templates.rendering import Rendered

_QUESTION: Message = {"role": "user", "content": "Well?"}
_FURTHER: Message = {"role": "user", "content": "And?"}
_PLAIN = "It is an abacus."
_TAGS = ("<think>", "</think>")
_SHOWN = 60


class ModelTexts(NamedTuple):
    """Texts by their names, and what the request had that they answer."""

    texts: Annotated[Mapping[str, str], lambda texts: None if texts else "there are none"]
    tools: tuple[dict[str, Any], ...] | None = None
    kwargs: Mapping[str, Any] = {}


class TextsBack(NamedTuple):
    """What became of all texts: how many were kept by the ways in which they were read, and where another was not."""

    texts: int
    kept: Mapping[str, int]
    findings: tuple[Finding, ...]


def read(data: bytes, where: str) -> ModelTexts:
    """Read texts. Raises ``ManifestError`` with every problem."""
    form = """write {"texts": {"NAME": "TEXT"}}; "tools" and "kwargs" may be beside it"""
    return decode(ModelTexts, object_of(data, where, form), where, hint=form)


def send_back(
    asked: ModelTexts,
    release: ReleaseParsers,
    pair: ParserPair,
    render: Callable[[Sequence[Conversation]], Sequence[Rendered]],
    content_format: str,
) -> TextsBack:
    """Have a pair of a release's parsers read each text, and render what was read into the next prompt.

    Raises ``UsageError`` for a parser that the release does not have, ``ManifestError`` where there is no prompt.
    """
    release.require(*pair)

    def conversation(*messages: Message, begun: bool = True) -> Conversation:
        handed = tuple(replay.with_content_as(one, content_format) for one in messages)
        return Conversation("texts", handed, asked.tools, dict(asked.kwargs), begun)

    answered = (_QUESTION, replay.assistant_message(_PLAIN))
    first, plain = render([conversation(_QUESTION), conversation(*answered, begun=False)])
    if first.prompt is None or plain.prompt is None:
        why = first.error or plain.error or ""
        raise ManifestError("--answers", (f"no prompt: {why}",))
    prompt, end = first.prompt, plain.prompt.rpartition(_PLAIN)[2]
    jobs = [
        ReadingJob(prompt, text, True, *pair, asked.tools or (), _TAGS, LIKELY)
        for text in asked.texts.values()
    ]
    answers = release.read(jobs)
    read_well = [one for by_way in answers for one in by_way.values() if "error" not in one]
    histories = iter(
        render([conversation(_QUESTION, replay.message_of(one), _FURTHER) for one in read_well])
    )
    kept = dict.fromkeys(LIKELY, 0)
    findings = []
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
            message = f"{name}{where}: {next(iter(lost.values()))}"
            findings.append(Finding(FindingCode.ANSWER_DIFFERS, message))
    return TextsBack(len(asked.texts), kept, tuple(findings))


def _difference(text: str, came: str) -> str:
    same = len(os.path.commonprefix([text, came]))  # noqa: RUF071  (letters are meant)
    wrote, has = text[same : same + _SHOWN], came[same : same + _SHOWN]
    return f"{wrote!r} is {has!r} in the next prompt"
