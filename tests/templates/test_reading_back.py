"""What a template writes is read back by a release's own parsers, and what they lose is said."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from doc_pages import ROOT
from lowering import lower
from packaging.requirements import Requirement
from toy_release import TEMPLATE, toy_release

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Level
from vllm_mods.templates import check, parser_process
from vllm_mods.templates.check import TemplateChecked
from vllm_mods.templates.reading_back import ANSWERS
from vllm_mods.templates.source import Template
from vllm_mods.trees.release import Releases

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
        """9 of 12 answers are read otherwise: a call: calls [{"arguments": "{'word': 'citadel'}\""""
    )
    assert not found.ok


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
        "not asked: toy asks whether is_made_otherwise is true, of a module that is stood in for here"
    )
    with pytest.raises(TreeError, match="toy asks whether is_made_otherwise is true"):
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


def test_a_template_without_tools_is_not_asked_for_calls() -> None:
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
    assert pair.findings[0].message.startswith("streamed at once: ")
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
        "2 of 12 answers are read otherwise: two calls: TimeoutError: more than 0.05 seconds for one answer"
    )


def test_a_name_that_the_release_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(UsageError, match="has no --tool-call-parser hermes") as caught:
        _checked(pair=("hermes", None))
    assert caught.value.hint == "it has toy"


def test_gpt_oss_needs_a_release_whose_parser_can_be_asked() -> None:
    tools = toy_release().files["vllm/tool_parsers/__init__.py"].decode()
    with pytest.raises(UsageError, match="its server reads gpt-oss's answers itself"):
        _checked(
            pair=("openai", None),
            files={"vllm/tool_parsers/__init__.py": tools.replace('"toy":', '"openai":')},
        )


def test_a_tree_without_parsers_says_so() -> None:
    tree = toy_release()
    tree.files = {"vllm/__init__.py": b""}
    with pytest.raises(TreeError, match="there is no vllm/tool_parsers"):
        parser_process.open_release(tree)


def test_a_tree_whose_parsers_do_not_import_says_why() -> None:
    with pytest.raises(
        TreeError, match="its parsers do not run: NameError: name 'oh' is not defined"
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
    with pytest.raises(TreeError, match="they compute for more than 1 seconds"):
        parser_process.open_release(toy_release("while True: pass"))
