"""What the docs say of commands, keys, codes, variables and messages is what the code has."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import pytest
import reference
from doc_pages import ROOT, pages
from reference import commands, keys, messages, words
from reference.markdown import code, plain, table

import vllm_mods
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Verdict
from vllm_mods.cli import COMMANDS
from vllm_mods.cli.examples import examples
from vllm_mods.formats import manifest, pairing
from vllm_mods.report.text import MEANING
from vllm_mods.report.words import code_groups

PACKAGE = Path(vllm_mods.__file__).parent


@pytest.fixture(autouse=True, scope="module")
def _parsed() -> None:
    """Parse the package while nobody looks for garbage among half a million nodes, which all stay."""
    gc.disable()
    messages.sources()
    gc.freeze()
    gc.enable()


def _text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


@pytest.mark.slow
def test_every_part_that_is_made_of_the_code_stands_in_its_page_as_it_is() -> None:
    text = "".join((ROOT / page.path).read_text() for page in pages())
    assert sorted(reference.MARK.findall(text)) == sorted(reference.PARTS)
    for name, make in reference.PARTS.items():
        part = make()
        assert part.count("\n| ") > 3, name
        filled = f"<!-- generate: {name} -->\n\n{part}\n\n<!-- generated -->\n"
        assert filled in text, f"{name}: `(cd tools && python -m reference)` writes it anew"
    with pytest.raises(KeyError, match="nothing-like-it"):
        reference.fill_in("<!-- generate: nothing-like-it -->")


@pytest.mark.slow
def test_the_commands_have_their_options() -> None:
    made = commands.all_commands()
    names = {context.command_path.split()[1] for _, context in commands.walk()}
    assert names == set(COMMANDS)
    for command, context in commands.walk():
        section = made.split(f"\n## {context.command_path.removeprefix('vllm-mods ')} {{", 1)[-1]
        section = section.split("\n## ", 1)[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert max(parameter.opts, key=len) in section, (
                    context.command_path,
                    parameter.name,
                )


def test_a_bar_in_a_cell_is_a_bar() -> None:
    assert code("FILE|sha256:HEX") == "`FILE|sha256:HEX`"
    assert code("run `x`") == "`` run `x` ``"
    assert plain("a|b_c") == "a&#124;b&#95;c"
    assert table(("a", "b"), [(code("x|y"), plain("z"))]).splitlines()[2] == "| `x|y` | z |"


def test_the_commands_have_their_examples() -> None:
    made = commands.all_commands()
    names = {context.command_path.removeprefix("vllm-mods ") for _, context in commands.walk()}
    assert not [line for name in names for line in examples(name) if line not in made]


def test_what_verdicts_and_exit_codes_are() -> None:
    rows = dict(re.findall(r"\| `(\w+)` \| .* \| (.*) \| [01] \|", words.verdicts()))
    assert rows.keys() == {verdict.value for verdict in Verdict}
    readme = (ROOT / "README.md").read_text()
    for verdict, meaning in MEANING.items():
        assert f"| `{verdict}` | {meaning} | {rows[verdict].split(',')[0]} |\n" in readme
    assert rows["moved"] == "changes the files"
    assert rows["unfit"] == "refuses, exit code 3"
    assert re.findall(r"^\| (\d+) ", words.exit_codes(), re.MULTILINE) == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "70",
        "130",
    ]


def test_the_examples_have_every_key() -> None:
    for parse, page in (
        (manifest.from_toml, "reference/mod-toml.md"),
        (pairing.parse, "pairings.md"),
    ):
        asked = keys.asked(parse)
        assert asked["schema"] == ("an integer", "yes")
        text = _text(page)
        missing = [key for key in asked if not re.search(rf"\b{key.rpartition('.')[2]}\b", text)]
        assert not missing, page


def test_json_has_every_command_that_answers_in_it() -> None:
    page = _text("reference/json.md")
    for command, context in commands.walk():
        if any("--json" in one.opts for one in command.params):
            name = context.command_path
            assert re.search(rf"^\$ {name} .*--json", page, re.MULTILINE), name


@pytest.mark.slow
def test_the_variables_that_matter_are_explained() -> None:
    read = words.read_variables()
    assert {
        "VLLM_MODS_CACHE",
        "VLLM_MODS_LIBRARY",
        "VLLM_MODS_PLAIN_HTTP",
        "WORKSPACE_DIR",
    } <= read.keys()
    page = _text("reference/environment.md")
    elsewhere = {
        "HOME",
        "XDG_CONFIG_DIRS",
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_COUNT",  # this and the next: between the parts of a recording's sandbox
        "VLLM_MODS_PATH",
    }  # other tools' files
    missing = [name for name in read if not re.search(rf"[`$]{name}\b", page)]
    assert not set(missing) - elsewhere


@pytest.mark.slow
def test_every_code_in_the_source_is_one_of_the_enumeration_and_the_other_way_round() -> None:
    known = set(FindingCode)
    assert {finding.code for finding in messages.findings()} <= known
    source = "".join(
        path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "finding_codes.py"
    )
    stated = {code for code in known if f'"{code}"' in source or f".{code.name}" in source}
    assert known - stated == set()


def test_every_code_has_a_meaning_and_a_next_step_that_is_a_command() -> None:
    groups = code_groups()
    codes = [code for group in groups.values() for code in group.codes]
    assert sorted(codes) == sorted(FindingCode)
    for name, group in groups.items():
        assert set(group.next) <= set(group.codes), name
        for step in (group.next_step, *group.next.values()):
            assert set(re.findall(r"vllm-mods ([a-z-]+)", step)) <= set(COMMANDS), step


def test_the_pages_with_a_table_of_codes_are_those_that_the_codes_name() -> None:
    pages_named = {group.page.removeprefix("docs/") for group in code_groups().values()}
    for page in pages_named:
        mark = "codes" if page.startswith("reference/") else f"codes-{page.removesuffix('.md')}"
        assert f"<!-- generate: {mark} -->" in _text(page)


@pytest.mark.slow
def test_a_message_and_a_hint_are_listed_whole() -> None:
    made = f"{messages.codes()}{messages.errors()}"
    assert "‹path›: not checked: ‹…›" in made
    assert "names ‹…› / ‹where›: it has no weight&#95;map" in made
    assert "--platform ‹first›, or name an image by its digest" in made
    assert "leave --platform out, or name the image for that platform" in made
    assert re.search(r"range-too-narrow`.* is outside the mod's ranges: widen", made)


@pytest.mark.slow
def test_messages_in_troubleshooting_are_messages_of_the_code() -> None:
    made = f"{messages.codes()}{messages.errors()}{''.join(_literals())}"
    made = re.sub(r"&#(\d+);", lambda sign: chr(int(sign[1])), made).replace("`", "")
    page = re.sub(r"```.*?```", "", _text("troubleshooting.md"), flags=re.DOTALL)
    unknown = [
        (heading, piece)
        for heading in re.findall(r"^###? (`.*)$", page, re.MULTILINE)
        for part in heading.replace("`", "").split("…")
        for piece in re.split("[,;] ", part)
        if piece.strip() not in made
    ]
    assert not unknown


def _literals() -> list[str]:
    """Return the texts in the source: a message may be put together of several."""
    import ast

    return [
        node.value
        for _, tree in messages.sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
