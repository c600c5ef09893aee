"""Blocks that are not run as they stand: Dockerfiles, YAML; and that the pages name real things."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import click
import pytest
import single_file
import yaml
from doc_commands import environment
from doc_pages import GENERATED, ROOT, SHOWN, agrees, commands, pages, read

from vllm_mods.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from doc_pages import Block, Page

SITE = "/usr/local/lib/python3.12/dist-packages"
PAGES = pages()


def _blocks(*languages: str, but: str | None = None) -> list[Any]:
    """Return the blocks in these languages, ``but`` those that say so: an engine runs that."""
    return [
        pytest.param(page, block, id=f"{page.path}:{block.line}")
        for page in PAGES
        for block in page.blocks
        if block.language in languages and not (but and but in block.body)
    ]


def _takes(words: list[str]) -> None:
    """Have click read a command line of this tool, without running it."""
    name, *rest = words
    context = click.Context(main, info_name="vllm-mods", **main.context_settings)
    command = main.get_command(context, name)
    assert command is not None, name
    command.make_context(name, rest, parent=context)


def _run_lines(block: Block) -> Iterator[str]:
    """Yield the shell command of each RUN that uses this tool, its mounts left out."""
    for line in block.body.replace("\\\n", " ").splitlines():
        if line.startswith("RUN ") and "apply" in line:
            yield re.sub(r"--mount=\S+", "", line.removeprefix("RUN ")).strip()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the page has made beforehand: the folder `tool`, vllm-mods.pyz."""
    folder = tmp_path_factory.mktemp("tools")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target"]
    subprocess.run([*pip, str(folder / "tool"), str(ROOT)], check=True)
    single_file.write({single_file.MINE: folder / "tool"}, folder / "vllm-mods.pyz")
    return folder


@pytest.mark.network
@pytest.mark.parametrize(("page", "block"), _blocks("dockerfile", but="vllm_mods sync"))
def test_a_dockerfiles_run_applies(
    page: Page, block: Block, release: Path, tools: Path, tmp_path: Path
) -> None:
    """With the release unpacked for the base, and a Python that has nothing of ours."""
    (line,) = _run_lines(block)
    site = tmp_path / "site"
    shutil.copytree(release, site)
    stands_for = {
        SITE: str(site),
        "/opt/vllm-mods": str(tools / "tool"),
        "/vllm-mods.pyz": str(tools / "vllm-mods.pyz"),
    }
    for mounted in re.findall(r"--mount=\S*target=(\S+)", block.body):
        assert mounted in line, f"{page.path}: {mounted} is mounted and not used"
    for place, here in stands_for.items():
        line = re.sub(rf"(?<=[ =]){place}\b", here, line)
    path = f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        env=environment(tmp_path / "home", {"PATH": path}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (site / ".vllm-mods/receipt.json").exists()


@pytest.mark.parametrize(("page", "block"), _blocks("yaml"))
def test_yaml_is_read_and_names_real_commands(page: Page, block: Block) -> None:
    document = yaml.safe_load(block.body)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    used = 0
    for one in _nodes(document):
        if isinstance(one, str) and one.startswith("vllm-mods "):
            used += 1
            _takes(shlex.split(one)[1:])
        elif isinstance(one, dict) and "OWNER/vllm-mods" in one.get("uses", ""):
            used += 1
            assert one["with"].keys() <= action["inputs"].keys()
        elif isinstance(one, dict) and "hooks" in one:
            used += 1
            assert {hook["id"] for hook in one["hooks"]} <= hooks
    assert used or "recipe_version" in document, f"{page.path}: nothing in it is ours"


@pytest.mark.parametrize(("page", "block"), _blocks("yaml"))
def test_a_workflow_says_when_it_runs_and_what_it_may_and_hides_no_failure(
    page: Page, block: Block
) -> None:
    document = yaml.safe_load(block.body)
    if "jobs" in document:
        assert document[True], page.path  # `on`, as YAML has it
        assert "permissions" in document, page.path
    assert "|| true" not in block.body
    assert "continue-on-error" not in block.body


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for one in below:
        yield from _nodes(one)


@pytest.mark.parametrize(
    ("page", "block"), [one for one in _blocks("sh", "console") if one.values[1].reason]
)
def test_what_is_not_run_is_a_command_line_all_the_same(page: Page, block: Block) -> None:
    assert block.reason, page.path
    text = "\n".join(command.text for command in commands(block))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("vllm-mods "):
            _takes(shlex.split(line)[1:])


def test_toml_is_toml() -> None:
    for page in PAGES:
        for block in page.blocks:
            if block.language == "toml":
                tomllib.loads(block.body)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.path) for page in PAGES])
def test_command_lines_in_the_text_are_real(page: Page) -> None:
    """Where the text has `vllm-mods COMMAND --flag`, there is such a command, and it has that flag."""
    own = GENERATED.sub("", (ROOT / page.path).read_text())
    text = re.sub(r"```.*?```", "", own, flags=re.DOTALL)
    context = click.Context(main, **main.context_settings)
    for span in re.findall(r"`vllm-mods ([^`]+)`", text):
        name, *words = span.split(" -- ")[0].split()
        alone = name.startswith("-") or name in {"COMMAND", "help"}
        command = main if alone else main.get_command(context, name)
        assert command is not None, f"{page.path}: `vllm-mods {span}`"
        known = {flag for one in command.get_params(context) for flag in one.opts} | {"--version"}
        flags = {word for word in (name, *words) if word.startswith("--")}
        assert flags <= known, f"{page.path}: `vllm-mods {span}`"


def test_reading_a_page() -> None:
    page = read(
        "x.md",
        "<!-- docs: page needs release -->\n"
        "<!-- docs: exit 3 -->\n```console\n$ one \\\n  two\nsaid\n\n$ three\n```\n"
        '```toml title="a/b.toml"\nx = 1\n```\n'
        "<!-- docs: not run: why -->\n```sh\nfour\n```\n",
    )
    assert page.markers == {"network"}
    run, file, left = page.blocks
    assert [(c.text, c.output, c.exit_code, c.line) for c in commands(run)] == [
        ("one \\\n  two", "said\n", 0, 4),
        ("three", "", 3, 8),
    ]
    assert (file.title, file.runs, file.language in SHOWN) == ("a/b.toml", False, True)
    assert (left.reason, left.runs) == ("why", False)
    with pytest.raises(ValueError, match=r"x\.md:2: what is `docs: exti 3`"):
        read("x.md", "<!-- docs: exti 3 -->\n```sh\nx\n```\n")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a b", "a\n  b\n", True),
        ("a … d", "a b c d", True),
        ("a …", "a", True),
        ("", "", True),
        ("", "a", False),
        ("a", "a b", False),
        ("a … c", "a b", False),
        ("1 file.", "1 files", False),
    ],
)
def test_agreeing(expected: str, printed: str, *, same: bool) -> None:
    assert agrees(expected, printed) is same
