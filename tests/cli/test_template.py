"""``template``: list, check, render, diff, patch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from making_images import Image, from_disk, layer as tar_of
from toy_release import TEMPLATE, toy_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., Any]

TOML = """\
schema = 1
name = "small"
version = "1"
summary = "A small one"
license = "MIT"
content_format = "string"
families = ["tiny"]

[kwargs.loud]
type = "boolean"
default = false
"""
TEXT = (
    "{% for m in messages %}{{ m.content|upper if loud else m.content }}"
    "{{ '.' if m.role == 'assistant' }}\n{% endfor %}"
)
HELLO = {"messages": [{"role": "user", "content": "hi"}], "expect": {"rendered": "hi\n"}}


@pytest.fixture
def small(library: Path) -> Path:
    folder = library / "templates/small"
    (folder / "conversations").mkdir(parents=True)
    (folder / "template.toml").write_text(TOML)
    (folder / "template.jinja").write_text(TEXT)
    (folder / "conversations/hello.json").write_text(json.dumps(HELLO))
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_list_names_those_of_all_libraries(call: Call) -> None:
    answer = call("template", "list")
    assert answer.code == 0
    assert "small             1  A small one\n                  for tiny\n" in answer.out
    assert "qwen3.5-enhanced" in answer.out
    found = {one["name"]: one for one in call("template", "list", "--json").json["templates"]}
    assert found["small"]["kwargs"]["loud"]["default"] is False
    assert found["small"]["conversations"] == ["hello"]


@pytest.mark.slow
def test_list_names_what_is_faulty_and_lists_the_rest(call: Call, small: Path) -> None:
    (small / "template.toml").write_text("schema = 1")
    answer = call("template", "list", "--json")
    assert answer.code == 2
    assert [one["name"] for one in answer.json["templates"]] == [
        "qwen3.5-enhanced",
        "qwen3.6-enhanced",
        "qwen3.8-enhanced",
    ]
    (fault,) = answer.json["faulty"]
    assert "name: is required" in fault["problems"]
    assert "template.toml: 5 problems" in answer.err


@pytest.mark.usefixtures("small")
def test_an_existing_file_is_a_file_whatever_its_name(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.diff").write_text("{{ messages }}")
    (tmp_path / "small").write_text("{{ nothing }}")
    answer = call("template", "check", "talk.diff", "small", "--json")
    names = [(one["name"], bool(one["conversations"])) for one in answer.json["templates"]]
    assert [name for name, _ in names] == ["talk.diff", "small"]
    assert names[1][1]  # the library's, which has conversations


@pytest.mark.slow
def test_a_template_alone_is_enough(call: Call, small: Path) -> None:
    (small / "template.toml").unlink()
    answer = call("template", "list")
    assert answer.code == 0
    assert "small             (it has no template.toml)\n" in answer.out
    answer = call("template", "check", "small")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "small")
    assert call("template", "render", "small", "hello").out == "hi\n"


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "many"), [("qwen3.5-enhanced", 37), ("qwen3.6-enhanced", 41)])
def test_the_bundled_ones_are_as_they_should_be(call: Call, name: str, many: int) -> None:
    answer = call("template", "check", name)
    assert answer.code == 0
    assert f"{many} conversations, all as expected" in answer.out
    assert "the cache is hit for 22 of 22 turns in 9 conversations" in answer.out
    assert "content format openai, in every vLLM from 0.15 on" in answer.out


@pytest.mark.slow
def test_check_says_what_is_not(call: Call, small: Path) -> None:
    (small / "template.jinja").write_text(TEXT.replace("m.content\n", "m.content"))
    (small / "template.jinja").write_text("{{ messages[0].role }}{{ loud }}")
    answer = call("template", "check", "small")
    assert answer.code == 1
    assert "1 conversation, 1 wrong" in answer.out
    assert "line 1 of the prompt is 'user', not 'hi' [prompt-differs]" in answer.out
    (found,) = call("template", "check", "small", "--json").json["templates"]
    assert not found["ok"]
    assert found["conversations"][0]["prompt"] == "user"
    assert [one["code"] for one in found["findings"]] == ["kwarg-default", "no-tools"]
    assert found["weights"] == {"refused": 0, "content lost": 4, "cache lost": 0, "style": 3}
    assert [one["weight"] for one in found["findings"]] == ["style", "style"]
    assert "content lost 4, 3 remarks on style" in answer.out


@pytest.mark.slow
def test_a_file_is_held_against_the_conversations_of_another(
    call: Call, small: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.jinja"
    mine.write_text(TEXT.replace("m.content|upper if loud else ", ""))
    answer = call("template", "check", str(mine))
    assert (answer.code, "hit for 7 of 7 turns" in answer.out) == (0, True)
    for others in ("small", str(small / "conversations")):
        answer = call("template", "check", str(mine), "--conversations", others)
        assert (answer.code, "1 conversation, all as expected" in answer.out) == (0, True)
    answer = call("template", "check", str(mine), "--conversations", "qwen3.5-enhanced")
    assert answer.code == 1
    assert "22-unknown-role: A role that nobody knows is refused by name and place" in answer.out


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_render_prints_the_prompt_and_nothing_else(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"model": "m", "messages": HELLO["messages"]}))
    for messages in ("hello", str(file)):
        assert call("template", "render", "small", messages).out == "hi\n"
    loud = ("--chat-template-kwargs", '{"loud": true}')
    assert call("template", "render", "small", "hello", *loud).out == "HI\n"
    assert call("template", "render", "small", "hello", "--json").json == {
        "schema": 1,
        "template": "small",
        "prompt": "hi\n",
    }


@pytest.mark.slow
def test_render_reads_stdin_and_can_leave_the_answer_to_nobody(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "messages.json"
    body = {"messages": HELLO["messages"], "add_generation_prompt": False}
    file.write_text(json.dumps(body))
    with file.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        answer = call("template", "render", "qwen3.5-enhanced", "-")
    assert answer.out == "<|im_start|>user\nhi<|im_end|>\n"


@pytest.mark.usefixtures("small")
def test_an_argument_that_the_template_does_not_read_is_named(call: Call) -> None:
    answer = call("template", "render", "small", "hello", "--chat-template-kwargs", '{"lou": 1}')
    assert (answer.code, answer.out) == (0, "hi\n")
    assert "note: the template does not read `lou`, so vLLM drops it" in answer.err


@pytest.mark.slow
def test_a_template_that_fails_is_named_with_its_line(call: Call, small: Path) -> None:
    (small / "template.jinja").write_text("{# #}\n{{ raise_exception('no') }}")
    answer = call("template", "render", "small", "hello")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"error: {small}/template.jinja:2: no\n")


@pytest.mark.slow
def test_diff_shows_how_prompts_differ(call: Call, small: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.jinja"
    new.write_text(TEXT)
    answer = call("template", "diff", "small", str(new))
    assert answer.code == 0
    assert answer.out.endswith("1 conversation: the same prompts\n")
    new.write_text("{{ messages[0].content }} there")
    answer = call("template", "diff", "small", str(new))
    assert answer.code == 1
    assert (
        f"--- small: hello\n+++ {new}: hello\n@@ -1 +1 @@\n-hi\n+hi there (no newline)\n"
        in answer.out
    )
    assert "1 of 1 conversation differ" in answer.out
    (row,) = call("template", "diff", "small", str(new), "--json").json["conversations"]
    assert row["same"] is False
    assert row["before"] == {"prompt": "hi\n", "error": None}
    new.write_text("{{ raise_exception('no') }}")
    assert "+error: no" in call("template", "diff", str(small / "template.jinja"), str(new), "--conversations", "small").out  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("render", "smal", "hello"), "there is no template named `smal`", "did you mean `small`"),
        (("render", "small", "nothing"), "nothing is neither a file nor a conversation beside", "nothing"),
        (("render", "./gone.jinja", "-"), "./gone.jinja: no such file", "template list"),
        (("render", "small", "hello", "--chat-template-kwargs", "{"), "not JSON", "--chat-template-kwargs"),
        (("render", "small", "hello", "--chat-template-kwargs", "1"), "expected an obj", "--chat-template-kwargs"),
        (("diff", "./a.jinja", "./a.jinja"), "no such file", "template list"),
        (("check", "small", "--conversations", "/dev/fd"), "there are no conversations", "NAME.json"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small")
def test_what_is_wrong_with_a_call(
    call: Call, arguments: tuple[str, ...], message: str, hint: str
) -> None:
    answer = call("template", *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert hint in answer.err


@pytest.mark.slow
def test_a_template_in_a_tree_is_checked(call: Call, site: Path) -> None:
    (site / "vllm/chat.jinja").write_text(TEXT)
    answer = call("template", "check", "vllm/chat.jinja", "--in", site)
    assert (answer.code, "nothing is refused or lost" in answer.out) == (0, True)
    for named, message in (
        ("vllm/gone.jinja", "vllm/gone.jinja: no such file"),
        ("vllm", "vllm: neither chat_template.jinja nor tokenizer_config.json has"),
        ("../chat.jinja", "../chat.jinja"),
    ):
        answer = call("template", "check", named, "--in", site)
        assert (answer.code, message in answer.err) == (2 if ".." not in named else 1, True)
    answer = call("template", "check", "--in", site)
    assert (answer.code, "--in TREE needs a TEMPLATE" in answer.err) == (2, True)


@pytest.mark.slow
def test_a_template_in_an_image_is_checked_and_its_special_tokens_are_known(
    call: Call, site: Path, tmp_path: Path
) -> None:
    model = {"bos_token": "<s>", "chat_template": "{{ bos_token }}" + TEXT}
    files = {f"usr/local/lib/python3.12/dist-packages/{k}": v for k, v in from_disk(site).items()}
    files["models/m/tokenizer_config.json"] = json.dumps(model).encode()
    layout = Image([tar_of(files)], {"Env": ["PATH=/usr/local/bin"]}).layout(tmp_path / "layout")
    for named in ("/models/m", "/models/m/", "/models/m/tokenizer_config.json"):
        answer = call("template", "check", named, "--in", f"image:oci:{layout}")
        assert (answer.code, answer.err, answer.out.split("\n")[0]) == (0, "", named)
        assert "nothing is refused or lost, 1 remark on style\n" in answer.out
        assert "tokens-unknown" not in answer.out


@pytest.mark.slow
def test_diff_says_what_each_template_keeps_and_loses(call: Call, tmp_path: Path) -> None:
    old, new = tmp_path / "old.jinja", tmp_path / "new.jinja"
    old.write_text(TEXT.replace("{% for", "{{ messages|length }}{% for", 1))
    new.write_text(TEXT.replace("messages %}", "messages if m.role != 'system' %}"))
    answer = call("template", "diff", str(old), str(new))
    assert answer.code == 1
    table = {line.split("  ")[0]: line.split() for line in answer.out.splitlines() if "  " in line}
    assert table["chat"][1:4] == ["0", "of", "2"]
    assert answer.out.count(", content lost\n") == 2
    assert table["content lost"] == ["content", "lost", "0", "2"]
    assert table["cache lost"] == ["cache", "lost", "4", "0"]
    assert answer.out.endswith("4 of 4 conversations differ\n")
    found = call("template", "diff", str(old), str(new), "--json").json
    assert found["replays"][0]["before"]["bytes_kept"] == 0
    assert found["replays"][0]["after"]["turns_kept"] == 2
    assert [one["weights"]["content lost"] for one in found["templates"]] == [0, 2]


@pytest.mark.slow
def test_diff_tells_what_only_one_of_two_is_asked(call: Call, tmp_path: Path) -> None:
    old, new = tmp_path / "old.jinja", tmp_path / "new.jinja"
    old.write_text(TEXT)
    new.write_text("{{ tools }}{{ raise_exception('no') if tools }}" + TEXT)
    answer = call("template", "diff", str(old), str(new))
    (row,) = [line.split("  ") for line in answer.out.splitlines() if line.startswith("agent ")]
    assert [cell.strip() for cell in row if cell] == ["agent", "not tested", "refused"]
    new.write_text("{% if %}")
    answer = call("template", "diff", str(old), str(new))
    assert (answer.code, "new.jinja:1: Expected an expression" in answer.err) == (1, True)


def test_what_lies_beside_a_template_is_checked(call: Call, small: Path) -> None:
    (small / "conversations/hello.json").write_text("{")
    answer = call("template", "check", "small")
    assert answer.code == 2
    assert "conversations/hello.json: 1 problem\n  not JSON" in answer.err
    (small / "conversations/hello.json").unlink()
    (small / "template.toml").write_text(TOML.replace('"small"', '"other"'))
    answer = call("template", "check", "small")
    assert answer.code == 2
    assert "name is 'other', but its folder is named 'small'" in answer.err


@pytest.fixture
def release(tmp_path: Path) -> str:
    for path, data in toy_release().files.items():
        file = tmp_path / "site" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    (tmp_path / "site/vllm/__init__.py").touch()
    (tmp_path / "site/vllm/_version.py").write_text('__version__ = version = "0.21.0"\n')
    return str(tmp_path / "site")


@pytest.mark.slow
def test_parsers_of_a_release_read_what_a_template_writes(
    call: Call, tmp_path: Path, release: str
) -> None:
    (tmp_path / "t.jinja").write_bytes(TEMPLATE)
    asked = ("template", "check", f"{tmp_path}/t.jinja", "--parsers", "--target", release)
    answer = call(*asked)
    assert answer.code == 0
    assert "  of 1 tool parsers and 1 reasoning parsers of vLLM 0.21.0\n" in answer.out
    assert "    read all its calls: toy\n    read all its reasoning: toy\n" in answer.out
    answer = call(*asked, "--tool-call-parser", "toy", "--reasoning-parser", "toy")
    assert answer.code == 0
    assert "    parsed correctly with toy and toy: all 12, streamed or not\n" in answer.out
    (found,) = call(*asked, "--tool-call-parser", "toy", "--json").json["templates"]
    (pair,) = found["parsers"]["pairs"]
    assert (pair["tool_call_parser"], pair["reasoning_parser"]) == ("toy", None)
    assert pair["answers"] == 12
    assert pair["read"]["whole"] < 12
    assert not found["ok"]
    assert call(*asked, "--tool-call-parser", "toy").code == 1


@pytest.mark.parametrize(
    "given",
    [("--parsers",), ("--target", "x"), ("--tool-call-parser", "x"), ("--reasoning-parser", "x")],
)
def test_a_release_is_run_only_if_that_is_what_is_asked(call: Call, given: tuple[str, ...]) -> None:
    answer = call("template", "check", "qwen3.5-enhanced", *given)
    assert answer.code == 2
    assert "--parsers --target" in answer.err


def test_a_template_that_jinja_cannot_read_has_a_next_step(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.jinja").write_text("{{ x }")
    answer = call("template", "check", str(tmp_path / "bad.jinja"))
    assert answer.code == 1
    assert "hint: correct the template at the named line" in answer.err
