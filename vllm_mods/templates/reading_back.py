"""The answers that a template writes into a history, read back by the parsers of a release.

What a model writes is what the template itself writes of the assistant's message, so no family of
models needs code of its own here. The parsers are the release's own code: ``parser_process`` runs it.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, all_well
from vllm_mods.templates import rendering, replay
from vllm_mods.templates.conversation import Conversation, Message
from vllm_mods.templates.parser_process import ReadingJob, ReleaseParsers, as_text

WAYS = ("whole", "1", "3", "1000000")
"""An answer at once, and streamed by so many tokens."""
LIKELY = WAYS[:3]
"""A delta with all of an answer in it is rare."""
_TAG = re.compile(r"<\|[^<>|\s]+\|?>|<[^<>|\s]+\|>|\[/?[A-Z_]{2,}\]")
_SHOWN = 160
ParserPair = tuple[str | None, str | None]
"""The names of a tool parser and of a reasoning parser."""
TOOLS = (
    replay.tool("look_up", word="string"),
    replay.tool("write", text="string", count="integer", share="number", wide="boolean", tags="array", more="object"),
    replay.tool("nothing"),
)  # fmt: skip


ANSWERS = {
    name: replay.message_of(answer)
    for name, answer in json.loads(files(__package__).joinpath("answers.json").read_bytes()).items()
}
"""What an assistant may say: each is rendered into a history, and has to be read as just that."""
_CALL = "a call"
_REASONED = "reasoning and an answer"


class WrittenAnswer(NamedTuple):
    """One answer as a model would have written it, behind its prompt.

    ``opened``: all that the prompt opens shows in the history. ``ended``: so does what ends a turn. ``tags``
    are tokens of their own by their looks, of all answers.
    """

    name: str
    message: Message
    prompt: str
    text: str
    opened: bool
    ended: bool
    tags: tuple[str, ...]


class PairRead(NamedTuple):
    """How a pair of parsers read the answers: how many there are, how many came back in each way.

    ``unasked`` is what it asked of a stub for the first of them: then it was not tested.
    """

    tool: str | None
    reasoning: str | None
    asked: int
    read: tuple[int, ...]
    findings: tuple[Finding, ...]
    unasked: str = ""

    @property
    def whole(self) -> bool:
        """Whether every answer came back, however it was streamed."""
        return all(count == self.asked for count in self.read)


class ReadBack(NamedTuple):
    """What the parsers of a release make of a template's answers; ``named`` if somebody named them."""

    release: ReleaseParsers
    named: bool
    pairs: tuple[PairRead, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether all that the named parsers, or any, should read is read."""
        return all_well(self.findings) and all(all_well(one.findings) for one in self.pairs)


def read_back(
    release: ReleaseParsers,
    render: Callable[[Sequence[Conversation]], Sequence[rendering.Rendered]],
    formats: Sequence[tuple[str, str]],
    named: ParserPair,
    *,
    with_tools: bool,
) -> ReadBack:
    """Have a release's parsers read what a template writes; all that can, if none is named.

    ``formats`` are those that releases take it for (``RenderAnswer``).

    Raises ``UsageError`` for the name of a parser that the release does not have, ``TreeError`` for one that
    asks what nobody here can answer.
    """
    content_format = rendering.format_on(formats, release.version)
    written, findings = answers_of(render, content_format, with_tools=with_tools)
    release.require(*named)
    pairs, unasked = [named], []
    if not any(named):  # a call, or reasoning, tells which of all can read them
        first = [one for one in written if one.name in (_CALL, _REASONED)]
        tools = [(name, None) for name in release.tools]
        reasoners = [(None, name) for name in release.reasoners]
        tried = _judge(release, first, [*tools, *reasoners], WAYS[:1], named=False)
        pairs = [(one.tool, one.reasoning) for one in tried if one.asked and one.whole]
        unasked = [f"{t.tool or t.reasoning} asks {t.unasked}" for t in tried if t.unasked]
    read = _judge(release, written, pairs, WAYS, named=any(named))
    has_calls = any("tool_calls" in one.message for one in written)
    is_unread = has_calls and not any(named) and not any(tool for tool, _ in pairs)
    if unasked:
        message = f"not tested: {'; '.join(unasked)}, which only a running vLLM knows"
        level = Level.ERROR if is_unread else Level.NOTE
        findings.append(Finding(FindingCode.PARSER_UNASKED, message, level=level))
    elif is_unread:
        message = f"none of the {len(release.tools)} tool parsers parses the calls that it writes"
        findings.append(Finding(FindingCode.CALLS_UNREAD, message))
    return ReadBack(release, any(named), read, tuple(findings))


def answers_of(
    render: Callable[[Sequence[Conversation]], Sequence[rendering.Rendered]],
    content_format: str,
    *,
    with_tools: bool,
) -> tuple[list[WrittenAnswer], list[Finding]]:
    """Return what a model writes in the words of a template, and what the template cannot write."""
    asked = {name: one for name, one in ANSWERS.items() if with_tools or "tool_calls" not in one}
    question: Message = {"role": "user", "content": "Well?"}
    jobs = []
    for message in asked.values():
        turns = [replay.with_content_as(one, content_format) for one in (question, message)]
        tools = TOOLS if with_tools else None
        jobs.append(Conversation("asked", tuple(turns[:1]), tools))
        jobs.append(Conversation("told", tuple(turns), tools, add_generation_prompt=False))
    rendered = iter(render(jobs))
    before = tail = ""
    written, findings = [], []
    for (name, message), prompt, history in zip(asked.items(), rendered, rendered, strict=True):
        if prompt.prompt is None or history.prompt is None:
            why = prompt.error or history.error or ""
            findings.append(Finding(FindingCode.NOT_RENDERED, f"{name}: {why}", level=Level.NOTE))
            continue
        if not before and message["content"]:
            before, _, tail = history.prompt.rpartition(message["content"])
        opened = history.prompt.startswith(prompt.prompt)
        # What a prompt opens and a history does not show is left out: all begin as a plain answer does.
        same = len(prompt.prompt) if opened else len(os.path.commonprefix([history.prompt, before]))  # noqa: RUF071  (letters)
        text = history.prompt[same:]
        ended = text.endswith(tail)
        if message.get("reasoning", "") in text:
            text = text.removesuffix(tail)
            begun = history.prompt[:same]
            written.append(WrittenAnswer(name, message, begun, text, opened, ended, ()))
    tags = tuple({tag: None for one in written for tag in _TAG.findall(one.prompt + one.text)})
    return [one._replace(tags=tags) for one in written], findings


def _job(written: WrittenAnswer, pair: ParserPair, ways: Sequence[str]) -> ReadingJob:
    tool, reasoning = pair
    said = written.prompt, written.text, written.ended
    asked = tool, reasoning if written.opened else None
    return ReadingJob(*said, *asked, TOOLS if tool else (), written.tags, ways)


def _judge(
    release: ReleaseParsers,
    written: Sequence[WrittenAnswer],
    pairs: Sequence[ParserPair],
    ways: Sequence[str],
    *,
    named: bool,
) -> tuple[PairRead, ...]:
    """Read every answer with each pair in all these ways; alone, a parser is asked for its own part only."""
    asked = [[one for one in written if named or _concerns(one, pair)] for pair in pairs]
    jobs = [_job(one, pair, ways) for pair, some in zip(pairs, asked, strict=True) for one in some]
    read = iter(release.read(jobs))
    results = []
    for pair, some in zip(pairs, asked, strict=True):
        counts, unasked = dict.fromkeys(ways, 0), ""
        lost: dict[tuple[str, ...], list[str]] = {}
        for answer in some:
            answers = next(read)
            stood_in = [str(one["error"]) for one in answers.values() if one.get("stood_in")]
            unasked = unasked or next(iter(stood_in), "")
            if named and unasked:
                why = f"{release.spec}: the template cannot be tested with {' and '.join(filter(None, pair))}: only a running vLLM knows {unasked}"
                raise TreeError(why, hint="name another parser, or ask a running vLLM")
            whys = {way: _difference(answer, answers[way], pair, alone=not named) for way in ways}
            wrong = tuple(way for way, why in whys.items() if why)
            for way in ways:
                counts[way] += way not in wrong
            if wrong:
                lost.setdefault(wrong, []).append(f"e.g. case `{answer.name}`: {whys[wrong[0]]}")
        findings = tuple(_loss_findings(lost, len(some), named=named))
        results.append(PairRead(*pair, len(some), tuple(counts.values()), findings, unasked))
    return tuple(results)


def _concerns(written: WrittenAnswer, pair: ParserPair) -> bool:
    if pair[0] is not None:
        return bool(written.message.get("tool_calls")) and "reasoning" not in written.message
    return "reasoning" in written.message


def _loss_findings(
    lost: Mapping[tuple[str, ...], Sequence[str]], asked: int, *, named: bool
) -> Iterator[Finding]:
    for ways, whys in lost.items():
        level = Level.ERROR if named and set(ways) & set(LIKELY) else Level.NOTE
        how = " or ".join(map(way_name, ways)).replace(" or streamed", " or")
        when = "" if len(ways) == len(WAYS) else f" if {how}"
        wrong, are, example = len(whys), "is" if len(whys) == 1 else "are", whys[0]
        message = f"{wrong} of {asked} answers {are} not parsed correctly{when}, {example}"
        yield Finding(FindingCode.ANSWER_DIFFERS, message, level=level)


def way_name(way: str) -> str:
    """Return one of ``WAYS`` in words."""
    chunks = "token by token", "3 tokens at a time", "in one chunk"
    streamed = dict(zip(WAYS[1:], chunks, strict=True))
    return f"streamed {streamed[way]}" if way in streamed else "not streamed"


def _difference(
    written: WrittenAnswer, read: dict[str, Any], pair: ParserPair, *, alone: bool
) -> str:
    """Say what was read otherwise than it was said; nothing if all came back."""
    if "error" in read:
        return str(read["error"])
    message = written.message
    calls = [call["function"] for call in message.get("tool_calls", ())]
    sides = []
    if pair[0] is not None:
        sides.append(("the list of calls", read["calls"], calls))
    if pair[1] is not None and written.opened:
        sides.append(("reasoning", read["reasoning"].strip(), message.get("reasoning", "")))
    if pair[0] if not alone else pair[1] and not calls:
        sides.append(("content", read["content"].strip(), message["content"]))
    for what, actual, wanted in sides:
        if as_text(actual) != as_text(wanted):
            return f"{what} was {_shorten(actual)}, expected {_shorten(wanted)}"
    return ""


def _shorten(value: Any) -> str:
    text = as_text(value) if value else "empty"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
