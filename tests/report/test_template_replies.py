"""What ``template`` answers: what templates are, what their prompts lose, what parsers read back."""

from __future__ import annotations

import pytest
from small_replies import lines

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.report import template
from vllm_mods.templates.check import TemplateChecked
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.parser_process import ReleaseParsers
from vllm_mods.templates.reading_back import PairRead, ReadBack
from vllm_mods.templates.rendering import RenderAnswer, Rendered
from vllm_mods.templates.replay import SCENES, CaseOutcome
from vllm_mods.templates.source import About, Kwarg, Template

KWARGS = (Kwarg("thinking", "boolean", True, "think"), Kwarg("tools", "array", None, "t"))
SAID = ("small", "1.0.0", "short", "MIT", "openai", ("qwen3", "llama"), "hermes", ("xml",), "qwen3")
ABOUT = About(*SAID, KWARGS)
A, B, C, D = (
    Conversation(name, (), title=title)
    for name, title in (("a", "A greeting"), ("b", ""), ("c", ""), ("d", ""))
)
SMALL = Template("small", "/t/template.jinja", b"", ABOUT, (A, B))
BARE = Template("bare", "/b.jinja", b"")
LOST = Finding(FindingCode.CONTENT_LOST, "content is lost", line=3)
REFUSED = Finding(FindingCode.NOT_RENDERED, "refused")
STYLE = Finding(FindingCode.TEXT, "odd", level=Level.NOTE)
ANSWER = RenderAnswer(
    ("messages", "thinking"), ("thinking", "tools", "bos_token"), (("0.10", "openai"),), ()
)
REPLAYS = (
    CaseOutcome(A, Rendered("p\nq\n"), (LOST,), 3, 2, 1000, 900),
    CaseOutcome(B, Rendered(None, "bad"), (REFUSED,), 1, 0, 10, 0),
)
OUTCOMES = (
    CaseOutcome(A, Rendered("p\nq\n"), (LOST, STYLE)),
    CaseOutcome(B, Rendered(None, "bad", 3), ()),
)
WHOLE = TemplateChecked(SMALL, ANSWER, (STYLE,), OUTCOMES, REPLAYS)
NONE_READ = TemplateChecked(BARE, None, ())
LOST_DATA, REFUSED_DATA, STYLE_DATA = (
    {**finding._asdict(), "weight": weight}
    for finding, weight in ((LOST, "content lost"), (REFUSED, "refused"), (STYLE, "style"))
)
REPLAYS_DATA = [
    {
        "name": "a",
        "turns": 3,
        "turns_kept": 2,
        "bytes": 1000,
        "bytes_kept": 900,
        "findings": [LOST_DATA],
    },
    {
        "name": "b",
        "turns": 1,
        "turns_kept": 0,
        "bytes": 10,
        "bytes_kept": 0,
        "findings": [REFUSED_DATA],
    },
]
WEIGHTS = {"refused": 1, "content lost": 2, "cache lost": 0, "style": 2}
NO_WEIGHTS = dict.fromkeys(WEIGHTS, 0)


def test_a_list_of_templates_says_what_each_is_and_what_it_goes_with() -> None:
    alone = ABOUT._replace(families=(), tool_call_parser=None)
    reply = template.listed([SMALL, BARE, SMALL._replace(about=alone)], [])
    assert lines(reply) == [
        "small  1.0.0  short",
        "       for qwen3, llama; --tool-call-parser hermes --reasoning-parser qwen3",
        "bare   (it has no template.toml)",
        "small  1.0.0  short",
        "       for --reasoning-parser qwen3",
    ]
    assert reply.data["templates"][:2] == [
        {
            "name": "small",
            "path": "/t/template.jinja",
            "version": "1.0.0",
            "summary": "short",
            "license": "MIT",
            "content_format": "openai",
            "families": ("qwen3", "llama"),
            "tool_call_parser": "hermes",
            "other_tool_call_parsers": ("xml",),
            "reasoning_parser": "qwen3",
            "kwargs": {
                "thinking": {"type": "boolean", "default": True, "summary": "think"},
                "tools": {"type": "array", "default": None, "summary": "t"},
            },
            "conversations": ["a", "b"],
        },
        {
            "name": "bare",
            "path": "/b.jinja",
            "version": None,
            "summary": None,
            "license": None,
            "content_format": None,
            "families": (),
            "tool_call_parser": None,
            "other_tool_call_parsers": (),
            "reasoning_parser": None,
            "kwargs": {},
            "conversations": [],
        },
    ]
    assert (reply.data["faulty"], reply.exit_code, reply.stderr) == ([], 0, ())


def test_a_faulty_template_is_an_error_beside_the_others() -> None:
    reply = template.listed([], [ManifestError("/x", ("y: z",))])
    assert reply.words == "there are no templates"
    assert reply.data == {"templates": [], "faulty": [{"where": "/x", "problems": ["y: z"]}]}
    assert (reply.stderr, reply.exit_code) == (("error: /x: 1 problem\n  y: z",), 2)


def test_a_prompt_is_printed_as_it_is_with_a_note_on_what_the_template_does_not_read() -> None:
    reply = template.rendered(SMALL, "a\n\n", ("x",))
    assert reply.words == "a\n\n"
    assert reply.data == {"template": "small", "prompt": "a\n\n"}
    note = "note: the template does not read `x`, so vLLM drops it"
    assert reply[2:] == (True, None, (note,), True, None)


def test_a_check_says_what_each_conversation_loses() -> None:
    reply = template.checked([WHOLE, NONE_READ])
    assert lines(reply) == [
        "small 1.0.0",
        "  2 conversations, 1 wrong",
        "  the cache is hit for 2 of 4 turns in 2 conversations",
        "  content format openai, in every vLLM from 0.10 on",
        "  reads thinking",
        "  refused 1, content lost 2, 2 remarks on style",
        "  note: odd [text]",
        "  a: A greeting",
        "    /t/template.jinja:3: content is lost [content-lost]",
        "    note: odd [text]",
        "  a: A greeting",
        "    /t/template.jinja:3: content is lost [content-lost]",
        "  b",
        "    refused [not-rendered]",
        "bare",
        "  nothing is refused or lost",
        "small: problems: loses A greeting; does not render b; 1 of 2 conversations are not as expected; no reasoning",
        "bare: problems: it cannot be read",
    ]
    assert (reply.ok, reply.data["ok"]) == (False, False)
    assert reply.data["templates"] == [
        {
            "name": "small",
            "path": "/t/template.jinja",
            "ok": False,
            "verdict": lines(reply)[-2].removeprefix("small: "),
            "weights": WEIGHTS,
            "content_format": [{"since": "0.10", "format": "openai"}],
            "variables": ("messages", "thinking"),
            "arguments": ("thinking", "tools", "bos_token"),
            "findings": [STYLE_DATA],
            "conversations": [
                {
                    "name": "a",
                    "title": "A greeting",
                    "ok": False,
                    "prompt": "p\nq\n",
                    "error": None,
                    "findings": [LOST_DATA, STYLE_DATA],
                },
                {
                    "name": "b",
                    "title": "",
                    "ok": True,
                    "prompt": None,
                    "error": "bad",
                    "findings": [],
                },
            ],
            "replays": REPLAYS_DATA,
        },
        {
            "name": "bare",
            "path": "/b.jinja",
            "ok": True,
            "verdict": "problems: it cannot be read",
            "weights": NO_WEIGHTS,
            "content_format": [],
            "variables": (),
            "arguments": (),
            "findings": [],
            "conversations": [],
            "replays": [],
        },
    ]


def test_a_check_of_a_template_that_is_as_it_should_be() -> None:
    fine = CaseOutcome(A, Rendered("p"), ())
    answer = ANSWER._replace(arguments=("tools",), formats=(("0.10", "string"), ("0.12", "openai")))
    reply = template.checked([TemplateChecked(BARE, answer, (STYLE,), (fine,))])
    assert lines(reply) == [
        "bare",
        "  1 conversation, all as expected",
        "  content format string from vLLM 0.10 on, openai from vLLM 0.12 on",
        "  reads no arguments",
        "  nothing is refused or lost, 1 remark on style",
        "  note: odd [text]",
        "bare: not tested with conversations",
    ]
    assert reply.ok


def replayed(name: str, *findings: Finding) -> CaseOutcome:
    scene = next(one for one in SCENES if one.name == name)
    return CaseOutcome(scene, Rendered("p"), findings, 1, 1, 1, 1)


BESIDE = replayed("text-beside-a-call", LOST)
MIDWAY = replayed("system-message-midway", REFUSED._replace(level=Level.NOTE))
THINKS = replayed("agent-that-reasons")
TOOLLESS = Finding(FindingCode.NO_TOOLS, "no", level=Level.NOTE)
UNREAD = Finding(FindingCode.KWARG_UNREAD, "x")


@pytest.mark.parametrize(
    ("replays", "findings", "expected"),
    [
        ((replayed("chat"),), (), "works for chat; no reasoning"),
        ((replayed("chat"), replayed("agent"), THINKS), (), "works for chat and agents"),
        ((replayed("chat"),), (TOOLLESS,), "works for chat; no tools; no reasoning"),
        (
            (replayed("chat"), MIDWAY, THINKS),
            (),
            "works for chat; does not render system messages midway",
        ),
        (
            (replayed("chat"), replayed("agent"), BESIDE, THINKS),
            (),
            "problems: loses text beside calls; works for chat and agents",
        ),
        ((replayed("chat", LOST), THINKS), (), "problems: loses chats"),
        (
            (replayed("chat"), THINKS),
            (UNREAD,),
            "problems: it differs from its template.toml; works for chat",
        ),
        ((), (), "not tested with conversations"),
    ],
)
def test_one_sentence_says_what_a_template_is_good_for_and_the_exit_code_follows_it(
    replays: tuple[CaseOutcome, ...], findings: tuple[Finding, ...], expected: str
) -> None:
    reply = template.checked([TemplateChecked(BARE, ANSWER, findings, (), replays)])
    assert lines(reply)[-1] == f"bare: {expected}"
    assert reply.data["templates"][0]["verdict"] == expected
    assert reply.ok == (not expected.startswith("problems: "))


def test_two_templates_are_held_against_each_other_prompt_by_prompt() -> None:
    other = TemplateChecked(
        BARE,
        ANSWER,
        (),
        (
            CaseOutcome(A, Rendered("p\nr"), ()),
            CaseOutcome(B, Rendered(None, "bad"), ()),
            CaseOutcome(C, Rendered("x"), ()),
        ),
        (
            REPLAYS[0]._replace(findings=(), turns_kept=3, bytes_kept=1000),
            CaseOutcome(D, Rendered("p"), (), 1, 1, 2, 2),
        ),
    )
    reply = template.diff(WHOLE, other, ("old", "new"))
    before_in_words = "2 of 3 turns, 900 of 1,000 bytes, content lost"
    assert lines(reply) == [
        "--- old: a",
        "+++ new: a",
        "@@ -1,2 +1,2 @@",
        " p",
        "-q",
        "+r (no newline)",
        "cache kept    small                                           bare",
        f"a             {before_in_words}  3 of 3 turns, 1,000 of 1,000 bytes",
        "b             refused                                         not tested",
        "d             not tested                                      1 of 1 turns, 2 of 2 bytes",
        "refused       1                                               0",
        "content lost  2                                               0",
        "cache lost    0                                               0",
        "style         2                                               0",
        "1 of 2 conversations differ",
    ]
    kept = REPLAYS_DATA[0] | {"turns_kept": 3, "bytes_kept": 1000, "findings": []}
    new = {"turns": 1, "turns_kept": 1, "bytes": 2, "bytes_kept": 2, "findings": []}
    bad = {"prompt": None, "error": "bad"}
    before, after = ({"prompt": text, "error": None} for text in ("p\nq\n", "p\nr"))
    assert (reply.ok, reply.data) == (
        False,
        {
            "ok": False,
            "templates": [
                {"name": "small", "path": "/t/template.jinja", "weights": WEIGHTS},
                {"name": "bare", "path": "/b.jinja", "weights": NO_WEIGHTS},
            ],
            "replays": [
                {"name": "a", "before": REPLAYS_DATA[0], "after": kept},
                {"name": "b", "before": REPLAYS_DATA[1], "after": None},
                {"name": "d", "before": None, "after": {"name": "d", **new}},
            ],
            "conversations": [
                {"name": "a", "same": False, "before": before, "after": after},
                {"name": "b", "same": True, "before": bad, "after": bad},
            ],
        },
    )
    same = template.diff(WHOLE, WHOLE, ("old", "new"))
    assert (same.ok, same.data["ok"]) == (True, True)
    assert lines(same)[-1] == "2 conversations: the same prompts"
    error = template.diff(WHOLE, NONE_READ._replace(outcomes=OUTCOMES[1:] * 2), ("old", "new"))
    assert lines(error)[-1] == "1 conversation: the same prompts"


RELEASE = ReleaseParsers("pypi:0.19.1", "0.19.1", {}, ("hermes", "qwen"), ("deepseek",))
CALL = Finding(FindingCode.TEXT, "a call is lost")
HERMES = PairRead("hermes", None, 2, (2, 2, 2, 2), ())
BOTH = PairRead("qwen", "deepseek", 2, (2, 1, 0, 2), (CALL,))
THOUGHTS = PairRead(None, "deepseek", 1, (1, 1, 1, 1), ())
LESS = THOUGHTS._replace(read=(0, 0, 0, 0), findings=(CALL,))
LESS_READ = "0 of 1 not streamed, 0 streamed token by token, 0 streamed 3 tokens at a time, 0 streamed in one chunk"
BOTH_READ = "qwen and deepseek: 2 of 2 not streamed, 1 streamed token by token, 0 streamed 3 tokens at a time, 2 streamed in one chunk"
OF_RELEASE = "  of 2 tool parsers and 1 reasoning parsers of vLLM 0.19.1"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (
            (HERMES, BOTH),
            ["    read all its calls: hermes", "    read some of its calls: qwen and deepseek"],
        ),
        (
            (BOTH, LESS),
            [
                f"    calls parsed correctly with {BOTH_READ}",
                "      a call is lost [text]",
                f"    reasoning parsed correctly with deepseek: {LESS_READ}",
                "      a call is lost [text]",
            ],
        ),
        (
            (HERMES, HERMES, THOUGHTS),
            ["    read all its calls: hermes, hermes", "    read all its reasoning: deepseek"],
        ),
        (
            (HERMES, BOTH, LESS),
            [
                "    read all its calls: hermes",
                "    read some of its calls: qwen and deepseek",
                f"    reasoning parsed correctly with deepseek: {LESS_READ}",
                "      a call is lost [text]",
            ],
        ),
    ],
)
def test_of_all_parsers_of_a_release_those_that_read_all_are_named(
    pairs: tuple[PairRead, ...], expected: list[str]
) -> None:
    back = ReadBack(RELEASE, named=False, pairs=pairs, findings=(STYLE,))
    reply = template.checked([NONE_READ._replace(back=back)])
    end = ["    note: odd [text]", "  nothing is refused or lost"]
    assert lines(reply)[1:-1] == [OF_RELEASE, *expected, *end]


def test_of_parsers_that_were_named_each_is_told() -> None:
    back = ReadBack(RELEASE, named=True, pairs=(HERMES, BOTH), findings=(STYLE,))
    reply = template.checked([NONE_READ._replace(back=back)])
    assert lines(reply)[1:-2] == [
        "  its answers, parsed by vLLM 0.19.1",
        "    parsed correctly with hermes: all 2, streamed or not",
        f"    parsed correctly with {BOTH_READ}",
        "      a call is lost [text]",
        "    note: odd [text]",
    ]
    assert reply.data["templates"][0]["parsers"] == {
        "vllm": "0.19.1",
        "tool_call_parsers": ("hermes", "qwen"),
        "reasoning_parsers": ("deepseek",),
        "named": True,
        "pairs": [
            {
                "tool_call_parser": "hermes",
                "reasoning_parser": None,
                "answers": 2,
                "read": {"whole": 2, "1": 2, "3": 2, "1000000": 2},
                "findings": (),
            },
            {
                "tool_call_parser": "qwen",
                "reasoning_parser": "deepseek",
                "answers": 2,
                "read": {"whole": 2, "1": 1, "3": 0, "1000000": 2},
                "findings": (CALL,),
            },
        ],
        "findings": (STYLE,),
    }
