"""The bundled chat templates in a real vLLM: rendered by it, and read back by its own parsers.

Needs ``VLLM_MODS_BEHAVIOUR_PYTHON``, a Python with torch and what vLLM imports, transformers 5
among it, and ``VLLM_MODS_TEMPLATE_TREES``, source trees (site roots, joined as in ``PATH``) from
0.17 on, the first release that knows the models. No GPU is used and nothing is generated.

Each conversation is rendered; and for each assistant message in it, what the model must have
written is read by the release, whole and as a stream, and sent back as a client would. Where a
release is known to do something else, ``KNOWN`` says what and why, and it has to do just that.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from template_env import conversations, expected_calls, manifest, source

from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = list[dict[str, Any]]

PYTHON = os.environ.get("VLLM_MODS_BEHAVIOUR_PYTHON", "")
TREES = [t for t in os.environ.get("VLLM_MODS_TEMPLATE_TREES", "").split(os.pathsep) if t]
SCRIPT = os.path.join(os.path.dirname(__file__), "template_round_trip.py")
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEMPLATES = ("qwen3.5-enhanced", "qwen3.6-enhanced", "qwen3.8-enhanced")
PARSERS = ("qwen3_coder", "qwen3_xml")
ALL_AT_ONCE = 1_000_000
PIECES = (1, 2, 5, ALL_AT_ONCE)  # tokens in a delta; a token is a byte or a tag
WAYS = ("whole", *map(str, PIECES))

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.network,
    pytest.mark.skipif(
        not (PYTHON and TREES), reason="set VLLM_MODS_BEHAVIOUR_PYTHON and VLLM_MODS_TEMPLATE_TREES"
    ),
]

CONVERSATIONS = {name: conversations(name) for name in TEMPLATES}
EACH = pytest.mark.parametrize(
    ("name", "slug"), [(name, slug) for name in TEMPLATES for slug in CONVERSATIONS[name]]
)
READ = pytest.mark.parametrize(
    ("name", "slug"),
    [
        (name, slug)
        for name in TEMPLATES
        for slug, conversation in CONVERSATIONS[name].items()
        # text that is handed over as it is may end a turn anywhere
        if "error" not in conversation["expect"] and slug[:2] not in {"27", "36"}
    ],
)


# ---- what releases are known to do otherwise ---------------------------------------------------


class Known(NamedTuple):
    """Calls that the parsers of some releases read otherwise, and how."""

    reason: str
    vllm: SpecifierSet
    parsers: tuple[str, ...]
    ways: tuple[str, ...]
    change: Callable[[Calls], Calls]
    lossy: bool = True
    """Whether the calls look otherwise when they are sent back."""


def _each_value(change: Callable[[Any], Any]) -> Callable[[Calls], Calls]:
    def changed(calls: Calls) -> Calls:
        return [
            call | {"arguments": {key: change(value) for key, value in call["arguments"].items()}}
            for call in calls
        ]

    return changed


KNOWN = (
    Known(
        "a delta that holds a whole call starts the call and never reads the rest of it",
        SpecifierSet("<0.24"), ("qwen3_coder",), (str(ALL_AT_ONCE),),
        lambda _: [],
    ),
    Known(
        "null is null whatever the tool says; it is written the same, so nothing is lost for good",
        SpecifierSet("<0.22"), ("qwen3_coder",), WAYS,
        _each_value(lambda value: None if value == "null" else value), lossy=False,
    ),
    Known(
        "the first engine parser strips every string: no template can write a blank at its edge",
        SpecifierSet(">=0.24,<0.26"), PARSERS, WAYS,
        _each_value(lambda value: value.strip() if isinstance(value, str) else value),
    ),
)  # fmt: skip

XML_PARSER = SpecifierSet("<0.24")
MISREAD_BY_XML = {
    "04-arguments-as-json-string",
    "07-argument-values",
    "31-strings-like-other-types",
}
"""qwen3_xml goes through an XML parser there: null is "" or a part of its letters, a streamed true
is false, CRLF is LF. qwen3_coder is right in each case, which is why the mods name it."""

NO_BROKEN_ARGUMENTS = SpecifierSet("<0.29")
"""A history with a call whose arguments are no JSON is refused before a template sees it."""

TEXT_OF_TOOLS = SpecifierSet(">=0.20,<0.21")
"""Of a tool's parts only the text reaches a template."""

ONLY_OBJECTS = SpecifierSet(">=0.29")
"""Arguments that are no JSON object are emptied before a template sees them."""


# ---- asking ------------------------------------------------------------------------------------


class Release(NamedTuple):
    """What one vLLM did with every conversation of every template."""

    version: Version
    answers: dict[str, dict[str, Any]]

    def conversation(self, name: str, slug: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.answers[name]["conversations"][slug]
        return answer


def _tools(calls: Calls) -> list[dict[str, Any]]:
    """Return tools that take these calls: parsers type a value by its schema."""
    kinds = {
        bool: "boolean", int: "integer", float: "number", str: "string",
        list: "array", dict: "object", type(None): "null",
    }  # fmt: skip
    properties: dict[str, dict[str, Any]] = {"f": {}}
    for call in calls:
        known = properties.setdefault(call["name"], {})
        known |= {key: {"type": kinds[type(value)]} for key, value in call["arguments"].items()}
    return [
        {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "properties": made}},
        }
        for name, made in properties.items()
    ]


@pytest.fixture(scope="module", params=TREES, ids=lambda tree: os.path.basename(tree.rstrip("/")))
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Release:
    folder = tmp_path_factory.mktemp("templates")
    cases = {
        name: {
            "template": source(name),
            "parsers": PARSERS,
            "pieces": PIECES,
            "conversations": {
                slug: one | {"reader_tools": _tools(expected_calls(name, slug))}
                for slug, one in CONVERSATIONS[name].items()
            },
        }
        for name in TEMPLATES
    }
    (folder / "cases.json").write_text(json.dumps(cases))
    paths = [request.param, os.environ.get("VLLM_MODS_BEHAVIOUR_PATH", ""), REPOSITORY]
    done = subprocess.run(
        [PYTHON, SCRIPT, str(folder / "cases.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = re.findall(r"^ANSWER (.*)$", done.stdout, re.MULTILINE)
    answers = json.loads(line)
    assert all(answer["vllm"].startswith(request.param) for answer in answers.values())
    version = open_tree(request.param).version
    assert version is not None
    assert Version(version) in SpecifierSet(">=0.17"), "older releases do not know the models"
    return Release(Version(version), answers)


# ---- there -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPLATES)
def test_vllm_detects_the_stated_content_format(release: Release, name: str) -> None:
    assert release.answers[name]["format"] == manifest(name)["content_format"]


@EACH
def test_vllm_renders_the_conversation(release: Release, name: str, slug: str) -> None:
    expect = CONVERSATIONS[name][slug]["expect"]
    got = release.conversation(name, slug)
    if slug == "06-arguments-broken" and release.version in NO_BROKEN_ARGUMENTS:
        assert "Unterminated string" in got["error"]
        return
    if "error" in expect:
        assert expect["error"] in got["error"]
        return
    prompt = got["prompt"]
    rendered = expect.get("rendered", prompt)
    if slug == "18-content-parts" and release.version in TEXT_OF_TOOLS:
        rendered = rendered.replace("Picture 3: <|vision_start|><|image_pad|><|vision_end|>", "")
    contains = set(expect.get("contains", ()))
    if slug == "05-arguments-dumped-twice" and release.version in ONLY_OBJECTS:
        assert "<function=write>\n</function>" in prompt
        return
    if slug == "16-reasoning-keys":  # vLLM takes `reasoning` from a client and no other key
        lost = {text for text in contains if "one" in text}
        assert not any(text in prompt for text in lost)
        contains -= lost
    if slug == "39-thinking-key-and-parts":  # the same; and such a part is text to a template
        rendered = rendered.replace("<think>\nunder a key\n</think>\n\n", "")
        rendered = rendered.replace("<think>\nas a part\n</think>\n\n", "as a part")
    assert prompt == rendered
    for text in contains:
        assert text in prompt
    for text in expect.get("absent", ()):
        assert text not in prompt


# ---- and back ----------------------------------------------------------------------------------


def _expected(
    release: Release, slug: str, parser: str, way: str, calls: Calls
) -> tuple[Calls, bool]:
    """Return the calls that this release reads, and whether they look the same when sent back."""
    if slug == "05-arguments-dumped-twice" and release.version in ONLY_OBJECTS:
        calls = [call | {"arguments": {}} for call in calls]
    same = True
    for known in KNOWN:
        if release.version in known.vllm and parser in known.parsers and way in known.ways:
            changed = known.change(calls)
            same = same and (changed == calls or not known.lossy)
            calls = changed
    return calls, same


def _turns(release: Release, name: str, slug: str) -> list[dict[str, Any]]:
    answer = release.conversation(name, slug)
    if slug == "06-arguments-broken" and release.version in NO_BROKEN_ARGUMENTS:
        assert "error" in answer
        return []
    turns: list[dict[str, Any]] = answer["turns"]
    return turns


@READ
def test_calls_come_back_as_they_were(release: Release, name: str, slug: str) -> None:
    turns = _turns(release, name, slug)
    expect = expected_calls(name, slug) if turns else []
    for parser, way in itertools.product(PARSERS, WAYS):
        answers = [turn["read"][parser][way] for turn in turns]
        read = [call for answer in answers for call in answer["calls"]]
        if parser == "qwen3_xml" and slug in MISREAD_BY_XML and release.version in XML_PARSER:
            assert read != expect, (parser, way)
            continue
        calls, same = _expected(release, slug, parser, way, expect)
        assert read == calls, (parser, way)
        again = [answer["again"] for answer in answers]
        assert all(one is True for one in again) is same, (parser, way, again)


@READ
def test_reasoning_and_answer_are_told_apart(release: Release, name: str, slug: str) -> None:
    for turn in _turns(release, name, slug):
        thought, closed, answer = turn["written"].partition("</think>")
        if not closed:  # thinking was off
            thought, answer = "", turn["written"]
        for parser, way in itertools.product(PARSERS, WAYS):
            read = turn["read"][parser][way]
            assert read["reasoning"].strip() == thought.strip(), (parser, way)
            assert read["content"].strip() == answer.split("<tool_call>")[0].strip(), (parser, way)
