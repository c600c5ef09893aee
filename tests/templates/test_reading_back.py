"""What a template writes is read back by a release's own parsers, and what they lose is said."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from doc_pages import ROOT
from lowering import lower
from packaging.requirements import Requirement
from toy_release import TEMPLATE, toy_release

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Level
from vllm_mods.templates import check, parser_process
from vllm_mods.templates.check import TemplateChecked
from vllm_mods.templates.parser_process import ReadingJob, ReleaseParsers
from vllm_mods.templates.reading_back import (
    ANSWERS,
    WAYS,
    ReadBack,
    answers_of,
    read_back,
    way_name,
)
from vllm_mods.templates.rendering import Rendered
from vllm_mods.templates.source import Template
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mods.templates.conversation import Conversation

TOY = ("toy", "toy")


def _checked(
    text: bytes = TEMPLATE,
    pair: tuple[str | None, str | None] = TOY,
    files: dict[str, str] = {},  # noqa: B006  (nothing changes it)
) -> TemplateChecked:
    release = parser_process.open_release(toy_release(**files))
    return check.check(Template("t.jinja", "t.jinja", text), (), release, pair)


@pytest.mark.slow
def test_every_answer_comes_back_whole_and_streamed() -> None:
    found = _checked()
    assert found.back is not None
    (pair,) = found.back.pairs
    assert pair.findings == ()
    assert (pair.asked, pair.read, found.back.ok) == (len(ANSWERS), (len(ANSWERS),) * 4, True)


@pytest.mark.slow
def test_without_a_name_the_parsers_that_read_are_found() -> None:
    found = _checked(pair=(None, None))
    assert found.back is not None
    assert [(one.tool, one.reasoning) for one in found.back.pairs] == [("toy", None), (None, "toy")]
    assert all(one.whole for one in found.back.pairs)


@pytest.mark.slow
def test_a_call_that_the_template_writes_otherwise_is_an_error() -> None:
    other = TEMPLATE.replace(b"arguments|tojson", b"arguments|string")
    found = _checked(other)
    assert found.back is not None
    (pair,) = found.back.pairs
    assert [one.level for one in pair.findings] == [Level.ERROR]
    assert pair.findings[0].message.startswith(
        """9 of 12 answers are not parsed correctly, e.g. case `a call`: the list of calls was [{"arguments": "{'word': 'citadel'}\""""
    )
    assert not found.ok


@pytest.mark.slow
def test_a_template_whose_calls_no_parser_reads_is_told_so() -> None:
    found = _checked(TEMPLATE.replace(b"<call>", b"<do>"), pair=(None, None))
    assert found.back is not None
    assert [one.code for one in found.back.findings] == ["calls-unread"]
    assert not found.ok


ASKING = {
    "vllm/tool_parsers/toy.py": toy_release()
    .files["vllm/tool_parsers/toy.py"]
    .decode()
    .replace(
        '        logger.info_once("read")\n',
        "        from vllm.utils.other import is_made_otherwise\n        if is_made_otherwise(self): return None\n",
    )
}


@pytest.mark.slow
def test_what_nobody_here_can_answer_is_no_answer_about_the_template() -> None:
    # is_mistral_tool_parser was stood in for, and was true: on 0.24.0 to 0.26.0 no parser read a call.
    found = _checked(pair=(None, None), files=ASKING)
    assert found.back is not None
    (said,) = (one for one in found.back.findings if one.level is Level.ERROR)
    assert said.code == "parser-unasked"
    assert said.message == (
        "not tested: toy asks whether is_made_otherwise is true, which only a running vLLM knows"
    )
    with pytest.raises(TreeError, match="only a running vLLM knows whether is_made_otherwise"):
        _checked(pair=("toy", None), files=ASKING)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize(
    "version", ["0.17.0", "0.20.2", "0.23.0", "0.24.0", "0.25.1", "0.26.0", "0.29.0", "0.33.0"]
)
def test_a_parser_that_is_known_to_read_the_calls_reads_them(version: str) -> None:
    release = parser_process.open_release(Releases().open(version))
    text = (ROOT / "templates/qwen3.6-enhanced/template.jinja").read_bytes()
    found = check.check(Template("t.jinja", "t.jinja", text), (), release, ("qwen3_coder", None))
    assert found.back is not None
    (pair,) = found.back.pairs
    assert min(pair.read[:3]) >= pair.asked - 4


@pytest.mark.slow
def test_a_template_without_tools_is_not_jobs_asked_calls() -> None:
    text = TEMPLATE.replace(b"{{- tools|tojson if tools else '' }}", b"")
    found = _checked(text)
    assert found.back is not None
    assert found.back.pairs[0].asked == sum("tool_calls" not in one for one in ANSWERS.values())


@pytest.mark.slow
def test_a_template_that_writes_nothing_behind_an_answer_is_read_as_any_other() -> None:
    found = _checked(TEMPLATE.replace(b"<end>", b""), pair=(None, None))
    assert found.back is not None
    assert [one.read[0] for one in found.back.pairs] == [9, 2]


@pytest.mark.slow
def test_what_only_a_rare_delta_loses_is_a_note() -> None:
    reads = toy_release().files["vllm/tool_parsers/toy.py"].decode()
    lossy = reads.replace(
        "        done = ", "        if len(text) > 20: return None\n        done = "
    )
    found = _checked(files={"vllm/tool_parsers/toy.py": lossy})
    assert found.back is not None
    (pair,) = found.back.pairs
    assert pair.read[:3] == (12, 12, 12)
    assert pair.read[3] < 12
    assert [one.level for one in pair.findings] == [Level.NOTE]
    assert pair.findings[0].message.partition(", e.g. ")[0].endswith(" if streamed in one chunk")
    assert found.back.ok


@pytest.mark.slow
def test_a_parser_that_fails_or_never_ends_has_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hasty = "from vllm_mods.templates import parser_sandbox\nparser_sandbox._SECONDS = 0.05\nmain = parser_sandbox.main\n"
    (tmp_path / "hasty_sandbox.py").write_text(hasty)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(parser_process, "SANDBOX", "hasty_sandbox")
    reads = toy_release().files["vllm/tool_parsers/toy.py"].decode()
    bad = reads.replace(
        '        logger.info_once("read")\n',
        "        while 'granite' in text: pass\n        if 'Öl' in text: raise SystemExit(3)\n",
    )
    found = _checked(files={"vllm/tool_parsers/toy.py": bad})
    assert found.back is not None
    (pair,) = found.back.pairs
    assert pair.read == (10, 10, 10, 10)
    assert pair.findings[0].message == (
        "2 of 12 answers are not parsed correctly, e.g. case `two calls`: TimeoutError: more than 0.05 seconds for one answer"
    )


@pytest.mark.slow
def test_a_name_that_the_release_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(UsageError, match="has no --tool-call-parser hermes") as caught:
        _checked(pair=("hermes", None))
    assert caught.value.hint == "one of toy"


@pytest.mark.slow
def test_gpt_oss_needs_a_release_whose_parser_can_be_asked() -> None:
    tools = toy_release().files["vllm/tool_parsers/__init__.py"].decode()
    with pytest.raises(UsageError, match="its server itself parses gpt-oss answers"):
        _checked(
            pair=("openai", None),
            files={"vllm/tool_parsers/__init__.py": tools.replace('"toy":', '"openai":')},
        )


def test_a_tree_without_parsers_says_so() -> None:
    tree = toy_release()
    tree.files = {"vllm/__init__.py": b""}
    with pytest.raises(TreeError, match="has no vllm/tool_parsers") as caught:
        parser_process.open_release(tree)
    assert caught.value.hint == "vLLM 0.15 or newer has it"


def test_a_tree_whose_parsers_do_not_import_says_why() -> None:
    with pytest.raises(
        TreeError, match="its parsers cannot run: NameError: name 'oh' is not defined"
    ):
        parser_process.open_release(toy_release("oh"))


def test_what_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = 'print(\'{"missing": ["regex"]}\')\nprint(\'{"error": "x"}\')\n'
    (tmp_path / "lacking_sandbox.py").write_text(f"{lines}def main(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(parser_process, "SANDBOX", "lacking_sandbox")
    with pytest.raises(UsageError, match="the parsers of vLLM need regex") as caught:
        parser_process.open_release(toy_release())
    assert caught.value.hint is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(one).name for one in project["optional-dependencies"]["parsers"]]
    assert caught.value.hint.startswith(f"pip install {' '.join(wanted)} ")


@pytest.mark.slow
def test_a_whole_process_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PARSER_SECONDS", 1)
    with pytest.raises(TreeError, match="it takes more than 1 seconds"):
        parser_process.open_release(toy_release("while True: pass"))


# ---- what is made of what the parsers say ----------------------------------------------------------


def _written(job: Conversation) -> Rendered:
    """Render as the toy's template does, without Jinja."""
    turns = []
    for message in job.messages:
        calls = [one["function"] for one in message.get("tool_calls", ())]
        written = "".join(f"<call>{json.dumps(one)}</call>" for one in calls)
        thought = f"<think>{message['reasoning']}</think>" if "reasoning" in message else ""
        turns.append(f"<|{message['role']}|>{thought}{message['content']}{written}<end>")
    return Rendered("".join(turns) + ("<|assistant|>" if job.add_generation_prompt else ""))


def _render(jobs: Sequence[Conversation]) -> list[Rendered]:
    return [*map(_written, jobs)]


def _understood(job: ReadingJob) -> dict[str, Any]:
    """Read what ``_written`` writes, each parser for its part."""
    text = job.text.removesuffix("<end>")
    answer: dict[str, Any] = {"reasoning": "", "content": "", "calls": []}
    if job.reasoning and text.startswith("<think>"):
        answer["reasoning"], _, text = text.removeprefix("<think>").partition("</think>")
    if job.tool:
        text, *calls = text.split("<call>")
        answer["calls"] = [json.loads(one.removesuffix("</call>")) for one in calls]
    return {**answer, "content": text}


class _Release:
    """The parsers of a release, which ``tell`` may have say something else of an answer."""

    spec, version, sources, missing = "toy", "0.21.0", {"vllm/parser/harmony.py": ""}, ()
    tools, reasoners = ("toy", "deaf"), ("think", "dull")

    def __init__(self, tell: Callable[[ReadingJob, str, dict[str, Any]], dict[str, Any]]) -> None:
        self.tell = tell
        self.jobs: list[ReadingJob] = []

    def require(self, tool: str | None, reasoning: str | None) -> None:
        ReleaseParsers.require(cast("ReleaseParsers", self), tool, reasoning)

    def read(self, jobs: Sequence[ReadingJob]) -> list[dict[str, Any]]:
        self.jobs += jobs
        nothing = {"reasoning": "", "content": "", "calls": []}
        return [
            {
                way: nothing
                if "deaf" in job or "dull" in job
                else self.tell(job, way, _understood(job))
                for way in job.ways
            }
            for job in jobs
        ]


def _read_back(
    tell: Callable[[ReadingJob, str, dict[str, Any]], dict[str, Any]],
    named: tuple[str | None, str | None] = (None, None),
    *,
    with_tools: bool = True,
) -> ReadBack:
    release = cast("ReleaseParsers", _Release(tell))
    return read_back(release, _render, (("0.15", "string"),), named, with_tools=with_tools)


def _plain(job: ReadingJob, way: str, answer: dict[str, Any]) -> dict[str, Any]:
    del job, way
    return answer


def test_all_that_read_are_told_with_what_they_were_jobs_asked() -> None:
    back = _read_back(_plain)
    assert [(one.tool, one.reasoning, one.asked, one.read) for one in back.pairs] == [
        ("toy", None, 9, (9,) * 4),
        (None, "think", 2, (2,) * 4),
    ]
    assert (back.named, back.findings, back.ok) == (False, (), True)
    assert all(one.whole for one in back.pairs)
    assert [one.reasoning for one in _read_back(_plain, with_tools=False).pairs] == ["think"]


def test_all_parsers_are_asked_once_and_those_that_read_in_every_way() -> None:
    release = _Release(_plain)
    formats = (("0.15", "string"),)
    read_back(cast("ReleaseParsers", release), _render, formats, (None, None), with_tools=True)
    asked_first = [(job.tool, job.reasoning, job.ways) for job in release.jobs[:4]]
    once = ("whole",)
    assert asked_first == [
        ("toy", None, once),
        ("deaf", None, once),
        (None, "think", once),
        (None, "dull", once),
    ]
    assert {job.ways for job in release.jobs[4:]} == {WAYS}
    assert {(len(job.tools), job.tool) for job in release.jobs} == {
        (3, "toy"),
        (3, "deaf"),
        (0, None),
    }


@pytest.mark.parametrize(
    ("named", "read"),
    [(("toy", "think"), (12,) * 4), (("toy", None), (10,) * 4), ((None, "think"), (12,) * 4)],
)
def test_those_that_are_named_are_jobs_asked_every_answer(
    named: tuple[str | None, str | None], read: tuple[int, ...]
) -> None:
    back = _read_back(_plain, named)
    assert [(one[:2], one.asked, one.read) for one in back.pairs] == [(named, 12, read)]
    assert (back.named, back.ok) == (True, read[0] == 12)


@pytest.mark.parametrize(
    ("ways", "message", "is_ok"),
    [
        (WAYS, "12 of 12 answers are not parsed correctly, e.g. case `an answer`: no", False),
        (
            WAYS[:1],
            "12 of 12 answers are not parsed correctly if not streamed, e.g. case `an answer`: no",
            False,
        ),
        (
            ("1", "3"),
            "12 of 12 answers are not parsed correctly if streamed token by token or 3 tokens at a time, e.g. case `an answer`: no",
            False,
        ),
        (
            WAYS[3:],
            "12 of 12 answers are not parsed correctly if streamed in one chunk, e.g. case `an answer`: no",
            True,
        ),
    ],
)
def test_what_is_lost_in_which_way(ways: tuple[str, ...], message: str, is_ok: bool) -> None:  # noqa: FBT001
    def tell(job: ReadingJob, way: str, answer: dict[str, Any]) -> dict[str, Any]:
        del job
        return {"error": "no"} if way in ways else answer

    back = _read_back(tell, TOY_AND_THINK)
    (finding,) = back.pairs[0].findings
    assert (finding.code, finding.message) == ("answer-differs", message)
    assert back.pairs[0].read == tuple(0 if way in ways else 12 for way in WAYS)
    assert (back.ok, back.pairs[0].whole) == (is_ok, False)


TOY_AND_THINK = ("toy", "think")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"calls": [{"name": "x"}]},
            """`an answer`: the list of calls was [{"name": "x"}], expected empty""",
        ),
        ({"reasoning": " so "}, """`an answer`: reasoning was "so", expected empty"""),
        ({"content": "It"}, """`an answer`: content was "It", expected "It is an abacus.\""""),
        (
            {"content": "x" * 200},
            f"""`an answer`: content was "{"x" * 159}…, expected "It is an abacus.\"""",
        ),
        ({"content": " It is an abacus.\n"}, ""),
    ],
)
def test_what_was_read_otherwise(change: dict[str, Any], message: str) -> None:
    def tell(job: ReadingJob, way: str, answer: dict[str, Any]) -> dict[str, Any]:
        del way
        return answer | change if job.text == "It is an abacus." else answer

    (pair,) = _read_back(tell, TOY_AND_THINK).pairs
    front = "1 of 12 answers is not parsed correctly, e.g. case "
    assert [one.message for one in pair.findings] == ([front + message] if message else [])


def test_alone_a_parser_is_jobs_asked_its_own_part_only() -> None:
    def tell(job: ReadingJob, way: str, answer: dict[str, Any]) -> dict[str, Any]:
        del way
        return answer | ({"reasoning": "x", "content": "y"} if job.tool else {"calls": ["z"]})

    assert [one[:2] for one in _read_back(tell).pairs] == [("toy", None), (None, "think")]


def test_the_calls_that_none_reads_are_an_error_of_the_template() -> None:
    def tell(job: ReadingJob, way: str, answer: dict[str, Any]) -> dict[str, Any]:
        del way
        return {"error": "no"} if job.tool else answer

    back = _read_back(tell)
    assert [(one.code, one.message) for one in back.findings] == [
        ("calls-unread", "none of the 2 tool parsers parses the calls that it writes")
    ]
    assert not back.ok
    assert _read_back(tell, with_tools=False).findings == ()


@pytest.mark.parametrize(
    ("silent", "level"),
    [({"toy"}, Level.ERROR), ({"think"}, Level.NOTE), ({"toy", "think"}, Level.ERROR)],
)
def test_those_that_could_not_be_asked_are_told(silent: set[str], level: Level) -> None:
    def tell(job: ReadingJob, way: str, answer: dict[str, Any]) -> dict[str, Any]:
        del way
        if silent & {job.tool, job.reasoning}:
            return {"error": "why", "stood_in": True}
        return answer

    (finding,) = _read_back(tell).findings
    names = "; ".join(f"{name} asks why" for name in ("toy", "think") if name in silent)
    assert finding.message == f"not tested: {names}, which only a running vLLM knows"
    assert (finding.code, finding.level) == ("parser-unasked", level)
    with pytest.raises(TreeError) as caught:
        _read_back(tell, TOY_AND_THINK)
    assert caught.value.message == (
        "toy: the template cannot be tested with toy and think: only a running vLLM knows why"
    )
    assert caught.value.hint == "name another parser, or ask a running vLLM"


@pytest.mark.parametrize(
    ("version", "formats", "content"),
    [
        ("0.21.0", (("0.15", "string"), ("0.22", "openai")), "It is an abacus."),
        ("0.22.0", (("0.15", "string"), ("0.22", "openai")), None),
        ("0.14.0", (("0.15", "openai"), ("0.22", "string")), None),
        (None, (("0.15", "string"), ("0.22", "openai")), None),
    ],
)
def test_content_is_as_the_release_hands_it_over(
    version: str | None, formats: tuple[tuple[str, str], ...], content: str | None
) -> None:
    jobs_asked: list[Conversation] = []

    def render(jobs: Sequence[Conversation]) -> list[Rendered]:
        jobs_asked.extend(jobs)
        return [Rendered(None, "no")] * len(jobs)

    release = _Release(_plain)
    release.version = version  # type: ignore[assignment]
    back = read_back(
        cast("ReleaseParsers", release), render, formats, (None, None), with_tools=False
    )
    wanted = content or [{"type": "text", "text": "It is an abacus."}]
    assert jobs_asked[1].messages[1]["content"] == wanted
    assert [(one.message, one.level) for one in back.findings] == [
        ("an answer: no", Level.NOTE),
        ("reasoning and an answer: no", Level.NOTE),
    ]
    assert [
        (one.tools, one.add_generation_prompt, len(one.messages)) for one in jobs_asked[:2]
    ] == [(None, True, 1), (None, False, 2)]


def test_an_answer_is_what_stands_behind_its_prompt() -> None:
    written, findings = answers_of(_render, "string", with_tools=True)
    assert [one.name for one in written] == [*ANSWERS]
    assert findings == []
    prompt = "<|user|>Well?<end><|assistant|>"
    assert written[1][2:] == (
        prompt,
        "<think>It is a basalt matter.</think>It is an abacus.",
        True,
        True,
        ("<|user|>", "<|assistant|>"),
    )
    assert written[2].text == '<call>{"name": "look_up", "arguments": {"word": "citadel"}}</call>'


def test_what_a_prompt_opens_and_a_history_does_not_show_is_no_part_of_an_answer() -> None:
    def render(jobs: Sequence[Conversation]) -> list[Rendered]:
        ends = {True: "[THINK]", False: "</s>"}
        return [
            Rendered(f"{_written(one).prompt}{ends[one.add_generation_prompt]}") for one in jobs
        ]

    written, _ = answers_of(render, "string", with_tools=False)
    prompt = "<|user|>Well?<end><|assistant|>"
    assert [one.prompt for one in written] == [prompt, prompt]
    assert [one.text for one in written] == [
        "It is an abacus.",
        "<think>It is a basalt matter.</think>It is an abacus.",
    ]
    assert [(one.opened, one.ended) for one in written] == [(False, True)] * 2
    assert written[0].tags == ("<|user|>", "<|assistant|>")


def test_reasoning_that_is_not_written_is_not_jobs_asked() -> None:
    def render(jobs: Sequence[Conversation]) -> list[Rendered]:
        return [
            Rendered((_written(one).prompt or "").replace("It is a basalt matter.", ""))
            for one in jobs
        ]

    assert [one.name for one in answers_of(render, "string", with_tools=False)[0]] == ["an answer"]


def test_ways_are_named() -> None:
    assert [*map(way_name, WAYS)] == [
        "not streamed",
        "streamed token by token",
        "streamed 3 tokens at a time",
        "streamed in one chunk",
    ]
