"""Every command explains itself, with examples that can be typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest

from vllm_mods.cli import COMMANDS, GROUPS, main
from vllm_mods.cli.examples import EXAMPLES, examples
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(main, **main.context_settings)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {one}", inner) for one, inner in command.commands.items())


ALL = dict(commands())


@pytest.mark.parametrize("path", ["", *ALL])
def test_help_ends_in_examples(path: str, call: Call) -> None:
    answer = call(*path.split(), "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"Usage: vllm-mods {path}".strip())
    assert answer.out.endswith("\n  ".join(("\n  Examples:", *examples(path))) + "\n")
    assert examples(path)
    assert not re.search(r"^  \S+ .*\.\.\.$", answer.out, re.MULTILINE)
    if path:
        assert call("help", *path.split()).out == answer.out


@pytest.mark.slow
def test_help_of_no_command_loads_what_talks_to_a_server() -> None:
    code = (
        "import sys\n"
        "from vllm_mods.cli import run\n"
        "for name in sys.argv[1:]:\n"
        "    assert run([name, '--help']) == 0, name\n"
        "    assert 'requests' not in sys.modules, name\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def words(line: str) -> list[str]:
    """Return the arguments of the vllm-mods in a line for a shell."""
    found = re.search(r"\$\((.*)\)", line)
    typed = shlex.split(found[1] if found else line, comments=True)
    while re.match(r"[A-Z_]+=", typed[0]):
        typed = typed[1:]
    assert typed[0] == "vllm-mods"
    return typed[1 : typed.index(">") if ">" in typed else None]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_can_be_typed(line: str) -> None:
    arguments = words(line)
    command: click.Command = main
    context = click.Context(main, info_name="vllm-mods", **main.context_settings)
    while isinstance(command, click.Group):
        name, *arguments = arguments
        inner = command.get_command(context, name)
        assert inner is not None
        command = inner
        context = click.Context(command, parent=context, info_name=name)
        if not isinstance(command, click.Group):
            command.parse_args(context, arguments)  # raises for what cannot be typed
    library = Library()
    known = {*library.names(), *library.pairing_names(), "my-fix", "diff", "old.lock", "new.lock"}
    for key in ("mods", "mod", "pairing", "name", "names"):
        value = context.params.get(key)
        named = (value,) if isinstance(value, str) else value or ()
        if context.info_name not in {"import", "port", "verify"} or key == "mod":
            assert set(named) <= known


def test_each_command_is_in_one_group_of_the_help(call: Call) -> None:
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
    shown = call("--help").out
    groups = dict(re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", shown, re.MULTILINE))
    for title, group in GROUPS.items():
        assert re.findall(r"^  ([a-z]\S*)  ", groups[title], re.MULTILINE) == list(group)
    columns = {
        len(found) for title in GROUPS for found in re.findall(r"\A  [a-z]\S* +", groups[title])
    }
    assert len(columns) == 1


def test_every_option_is_shown_once(call: Call) -> None:
    for path, command in ALL.items():
        shown = call(*path.split(), "--help").out
        for one in command.params:
            if isinstance(one, click.Option) and not one.hidden:
                assert len(re.findall(rf"(?m)^  {one.opts[-1]}(?: [A-Z[]|  |$)", shown)) == 1


def test_what_is_misspelt_is_named(call: Call) -> None:
    assert "did you mean `matrix`" in call("matirx").err
    assert call("version").out == call("--version").out
    assert "--target" in call("check", "fast", "--taget", "x").err
    assert "did you mean `fast`" in call("show", "fasst").err
    assert "did you mean `qwen3.5-122b-hybrid`" in call("show", "qwen3.5-122b-hybird").err


def test_a_pairing_in_the_place_of_a_mod_is_told(call: Call, site: Path) -> None:
    answer = call("check", "qwen3.5-122b-hybrid", "--target", site)
    assert answer.code == 2
    assert "hint: --pairing qwen3.5-122b-hybrid" in answer.err
