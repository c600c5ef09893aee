"""A template held against its own words and against conversations: each finding, and none too many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.library.catalog import Library
from vllm_mods.templates import source
from vllm_mods.templates.check import TemplateChecked, check
from vllm_mods.templates.conversation import Conversation, Expected
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from pathlib import Path

TOML = """\
schema = 1
name = "small"
version = "1"
summary = "A small one"
license = "MIT"
content_format = "string"
tool_call_parser = "hermes"

[kwargs.loud]
type = "boolean"
default = false
"""
TEXT = (
    "{% for m in messages %}{{ m.content|upper if loud else m.content }}"
    "{{ '.' if m.role == 'assistant' }}\n{% endfor %}"
)
HELLO = Conversation("hello", ({"role": "user", "content": "hi"},))


def _check(text: str = TEXT, toml: str | None = TOML, **expect: Any) -> TemplateChecked:
    said = source.parse_about(toml.encode(), "t.toml") if toml is not None else None
    template = Template("small", "small/template.jinja", text.encode(), said)
    return check(template, (HELLO._replace(expect=Expected(**expect)),))


def _codes(found: TemplateChecked) -> list[str]:
    (outcome,) = found.outcomes
    every = (*found.findings, *outcome.findings)
    return [one.code for one in every if one.code != "no-tools"]


@pytest.mark.parametrize(
    "expect", [{"rendered": "hi\n"}, {"contains": ("h", "i")}, {"absent": ("HI",)}]
)
def test_what_is_as_it_should_be_has_no_findings(expect: dict[str, Any]) -> None:
    found = _check(**expect)
    assert _codes(found) == []
    assert found.ok


@pytest.mark.parametrize(
    ("expect", "code", "message"),
    [
        ({"rendered": "hi\nho\n"}, "prompt-differs", "line 2 of the prompt is '', not 'ho'"),
        ({"rendered": "hi"}, "prompt-differs", "line 2 of the prompt is '', not its end"),
        ({"contains": ("ho",)}, "text-missing", "'ho' is not in the prompt"),
        ({"absent": ("hi",)}, "text-present", "'hi' is in the prompt"),
        ({"error": "no"}, "rendered", "it made a prompt, not the error 'no'"),
    ],
)
def test_what_is_not_as_it_should_be(expect: dict[str, Any], code: str, message: str) -> None:
    found = _check(**expect)
    ((finding,),) = [outcome.findings for outcome in found.outcomes]
    assert (finding.code, finding.message) == (code, message)
    assert not found.ok


@pytest.mark.slow
def test_an_error_has_its_line_and_one_that_is_expected_is_right() -> None:
    text = TEXT + "\n{{ raise_exception('no user') if messages[0].content == 'hi' }}"
    assert _check(text, error="no user").ok
    ((finding,),) = [one.findings for one in _check(text, error="no tools").outcomes]
    assert (finding.code, finding.line) == ("not-rendered", 3)
    assert finding.message == "no user, not 'no tools'"


def test_a_format_that_a_release_takes_it_for_and_that_it_is_not() -> None:
    text = TEXT + "{% for content in [] %}{% for c in content %}{% endfor %}{% endfor %}"
    found = _check(text, rendered="hi\n")
    assert _codes(found) == ["content-format"]
    assert "'openai' from 0.22 on" in found.findings[0].message


def test_an_argument_that_nothing_reads() -> None:
    assert _codes(_check("{{ messages[0].content }}", rendered="hi")) == ["kwarg-unread"]


def test_a_default_that_is_none() -> None:
    found = _check(TEXT.replace("loud", "loud is not false"), rendered="HI\n")
    assert _codes(found) == ["kwarg-default"]
    assert "hello has another prompt with it" in found.findings[0].message


def test_what_is_no_template_is_a_finding() -> None:
    found = _check("{% if %}")
    assert [one.code for one in found.findings] == ["template-unreadable"]
    assert not found.ok


def test_a_default_that_is_none_is_told_once_and_by_the_first_that_shows_it() -> None:
    text = TEXT.replace("loud", "loud is not false")
    about = source.parse_about(TOML.encode(), "t.toml")
    cases = (
        HELLO._replace(name="given", kwargs={"loud": False}),
        HELLO._replace(name="same", messages=({"role": "user", "content": "1"},)),
        HELLO._replace(name="other"),
        HELLO._replace(name="more"),
    )
    checked = check(Template("t", "t.jinja", text.encode(), about), cases)
    assert [one.message for one in checked.findings if one.code == "kwarg-default"] == [
        "kwargs.loud: False is not the default: other has another prompt with it"
    ]
    failing = text + "{{ raise_exception('no') if loud is false }}"
    checked = check(Template("t", "t.jinja", failing.encode(), about), cases[1:])
    assert [one.message for one in checked.findings if one.code == "kwarg-default"] == [
        "kwargs.loud: False is not the default: same fails with it: no"
    ]


def test_what_is_said_of_its_own_words() -> None:
    text = "{% for content in [] %}{% for c in content %}{% endfor %}{% endfor %}{{ messages[0].content }}"
    own = [
        one.message
        for one in _check(text).findings
        if one.code in ("content-format", "kwarg-unread")
    ]
    assert own == [
        "content_format: vLLM treats it as 'openai' from 0.22 on, not as 'string'",
        "kwargs.loud: the template does not read it, so vLLM drops it",
    ]


@pytest.mark.parametrize(
    ("expect", "messages"),
    [
        ({"error": "no"}, ["it made a prompt, not the error 'no'"]),
        (
            {"contains": ("x" * 201, "hi", "y")},
            [f"'{'x' * 199}… is not in the prompt", "'y' is not in the prompt"],
        ),
        ({"contains": ("x" * 198,)}, [f"'{'x' * 198}' is not in the prompt"]),
        ({"absent": ("h", "z", "i")}, ["'h' is in the prompt", "'i' is in the prompt"]),
        ({"rendered": "hi\nho\n"}, ["line 2 of the prompt is '', not 'ho'"]),
        ({"rendered": "ho\n"}, ["line 1 of the prompt is 'hi', not 'ho'"]),
        ({"rendered": "hi\n\n"}, ["line 3 of the prompt is its end, not ''"]),
        (
            {"rendered": "hi", "absent": ("h",)},
            ["line 2 of the prompt is '', not its end", "'h' is in the prompt"],
        ),
    ],
)
def test_what_is_said_of_a_prompt(expect: dict[str, Any], messages: list[str]) -> None:
    (outcome,) = _check(**expect).outcomes
    assert [one.message for one in outcome.findings] == messages
    assert not outcome.ok


def test_an_error_that_nobody_expects_is_told_as_it_is() -> None:
    (outcome,) = _check("{{ raise_exception('no user') }}", contains=("a",)).outcomes
    assert [(one.message, one.line) for one in outcome.findings] == [("no user", 1)]


def test_what_is_no_template_says_where() -> None:
    checked = _check("\n{% if %}")
    assert [one.message for one in checked.findings] == [
        "small/template.jinja:2: Expected an expression, got 'end of statement block'"
    ]
    assert checked.answer is None
    assert (checked.outcomes, checked.replays) == ((), ())


@pytest.mark.slow
def test_prompts_are_those_of_the_conversations_beside_it() -> None:
    checked = _check(rendered="hi\n")
    assert {name: one.prompt for name, one in checked.prompts.items()} == {"hello": "hi\n"}
    without = check(Template("t", "t.jinja", TEXT.encode()), ())
    assert without.prompts.keys() == {one.conversation.name for one in without.replays}
    assert (without.prompts["chat"].prompt or "").startswith(
        "First the raven.\nThen the saffron..\n"
    )


# ---- template.toml -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("schema = 1", "schema = 2", "reads schema 1, not 2"),
        ('content_format = "string"', "", "content_format: is required"),
        ('"string"', '"parts"', "expected one of string, openai"),
        ('name = "small"', 'name = "Small"', "name: expected lower case"),
        ("default = false", "", "kwargs.loud.default: is required"),
        ("tool_call_parser", "tool_cal_parser", "unknown key; did you mean 'tool_call_parser'"),
        ('type = "boolean"', 'type = "bool"', "kwargs.loud.type: expected one of boolean"),
    ],
)
def test_what_is_wrong_with_it_is_said(old: str, new: str, problem: str) -> None:
    with pytest.raises(ManifestError, match=problem):
        source.parse_about(TOML.replace(old, new, 1).encode(), "t.toml")


def test_it_says_everything_of_a_template() -> None:
    more = 'families = ["a", "b"]\nother_tool_call_parsers = ["xml"]\nreasoning_parser = "think"\n[kwargs.loud]\nsummary = "Loud."\n'
    about = source.parse_about(TOML.replace("[kwargs.loud]\n", more).encode(), "t.toml")
    assert about == source.About(
        name="small",
        version="1",
        summary="A small one",
        license="MIT",
        content_format="string",
        families=("a", "b"),
        tool_call_parser="hermes",
        other_tool_call_parsers=("xml",),
        reasoning_parser="think",
        kwargs=(source.Kwarg("loud", "boolean", default=False, summary="Loud."),),
    )
    least = "\n".join(TOML.split("\n")[:6])
    about = source.parse_about(least.encode(), "t.toml")
    assert about[5:] == ((), None, (), None, ())


@pytest.mark.parametrize("key", ["name", "version", "summary", "license", "content_format"])
def test_what_it_has_to_say(key: str) -> None:
    toml = "\n".join(line for line in TOML.split("\n") if not line.startswith(f"{key} "))
    with pytest.raises(ManifestError) as caught:
        source.parse_about(toml.encode(), "t.toml")
    assert caught.value.problems == (f"{key}: is required",)


# ---- where templates come from -------------------------------------------------------------------


def _tree(**files: object) -> MemoryTree:
    files_of = {
        name.replace("__", "/").replace("_json", ".json").replace("_jinja", ".jinja"): value
        for name, value in files.items()
    }
    return MemoryTree(
        {
            path: value.encode() if isinstance(value, str) else json.dumps(value).encode()
            for path, value in files_of.items()
        }
    )


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ("plain", "plain"),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}, 3], "d"),
    ],
)
def test_the_template_in_a_models_tokenizer(stated: object, text: str) -> None:
    tree = _tree(m__tokenizer_config_json={"chat_template": stated, "eos_token": "</s>"})
    for named in ("m", "m/", "m/tokenizer_config.json"):
        template = source.open_in_tree(tree, named)
        assert (template.name, template.path) == (named, "m/tokenizer_config.json")
        assert (template.data, template.tokens) == (text.encode(), (("eos_token", "</s>"),))


@pytest.mark.parametrize(
    "stated", [None, 3, [{"name": "other", "template": "t"}], [{"name": "default", "template": 1}]]
)
def test_a_model_without_a_template(stated: object) -> None:
    tree = _tree(m__tokenizer_config_json={"chat_template": stated})
    with pytest.raises(UsageError) as caught:
        source.open_in_tree(tree, "m")
    assert caught.value.message == (
        "m: neither chat_template.jinja nor tokenizer_config.json has a chat template"
    )
    assert caught.value.hint == "name the file of a template, or the folder of a model that has one"
    with pytest.raises(UsageError, match=r"^\.: neither"):
        source.open_in_tree(_tree(), "tokenizer_config.json")


def test_the_template_beside_a_models_tokenizer_comes_first_and_has_its_tokens() -> None:
    config = {"bos_token": {"content": "<s>"}, "eos_token": 3, "chat_template": "config"}
    tree = _tree(m__tokenizer_config_json=config, m__chat_template_jinja="file", m__x_jinja="x")
    template = source.open_in_tree(tree, "m")
    assert (template.path, template.data) == ("m/chat_template.jinja", b"file")
    assert template.tokens == (("bos_token", "<s>"),)
    other = source.open_in_tree(tree, "m/x.jinja")
    assert (other.name, other.path, other.data) == ("m/x.jinja", "m/x.jinja", b"x")
    assert other.tokens == (("bos_token", "<s>"),)
    assert source.open_in_tree(_tree(x_jinja="x"), "x.jinja").tokens == ()
    with pytest.raises(UsageError) as caught:
        source.open_in_tree(tree, "m/gone.jinja")
    assert caught.value.hint == f"the name is looked up in {tree.spec}"


def test_a_template_of_a_library_has_what_lies_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "templates/small"
    (folder / "conversations").mkdir(parents=True)
    (folder / "template.jinja").write_text(TEXT)
    library = Library(str(tmp_path))
    assert source.open_template(library, "small") == Template(
        "small", str(folder / "template.jinja"), TEXT.encode()
    )
    with pytest.raises(UsageError, match="there are no conversations"):
        source.conversations(library, "small")
    (folder / "template.toml").write_text(TOML)
    for name in ("b.json", "a.json", "notes.txt"):
        (folder / "conversations" / name).write_text(
            '{"messages": [{"role": "user"}], "expect": {"error": "e"}}'
        )
    template = source.open_template(library, "small")
    assert template.about == source.parse_about(TOML.encode(), "t.toml")
    assert [one.name for one in template.conversations] == ["a", "b"]
    for named in ("small", str(folder / "conversations")):
        assert source.conversations(library, named) == template.conversations
    (folder / "template.toml").write_text(TOML.replace('"small"', '"other"'))
    with pytest.raises(ManifestError) as caught:
        source.open_template(library, "small")
    assert caught.value.problems == ("name is 'other', but its folder is named 'small'",)
    opened = source.open_template(library, str(folder / "template.jinja"))
    assert (opened.about, opened.conversations) == (None, ())
    for named in (f"{folder}/gone", "gone.jinja", "gone.jinja2", "gone.j2", "gone.txt"):
        with pytest.raises(UsageError, match="no such file") as gone:
            source.open_template(library, named)
        assert gone.value.hint == "`vllm-mods template list` has the names"
