"""TAB in real shells: bash and zsh in a terminal, fish by its own completion engine; and what each is offered."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from sampling import few

from vllm_mods.cli import COMMANDS, helping, main

if TYPE_CHECKING:
    from pathlib import Path

CASES = {
    "vllm-mods compl": "vllm-mods completion ",
    "vllm-mods show hyb": "vllm-mods show hybrid-int4-fp8 ",
    "vllm-mods check --pairing qwen3.5-122b-hy": "vllm-mods check --pairing qwen3.5-122b-hybrid ",
    "vllm-mods check --target some-fol": "vllm-mods check --target some-folder/",
    "vllm-mods matrix --update": "vllm-mods matrix --update-lock ",
    "vllm-mods matrix --format mark": "vllm-mods matrix --format markdown ",
    "vllm-mods matrix --output some-fi": "vllm-mods matrix --output some-file ",
    "vllm-mods image insp": "vllm-mods image inspect ",
    "vllm-mods show a-mod-of": "vllm-mods show a-mod-of-mine ",
}
START = {"bash": ["bash", "--noprofile", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}
SET_UP = {
    "bash": "bind 'set enable-bracketed-paste off'; ",
    "zsh": "autoload -Uz compinit; compinit -u -D; unsetopt zle_bracketed_paste; ",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder to stand in, with this vllm-mods on PATH and a library."""
    place = tmp_path / "here"
    (place / "some-folder").mkdir(parents=True)
    (place / "some-file").touch()
    mod = tmp_path / "library/patches/a-mod-of-mine"
    mod.mkdir(parents=True)
    (mod / "x.patch").touch()
    (mod / "mod.toml").touch()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    script = bin_folder / "vllm-mods"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m vllm_mods "$@"\n')
    script.chmod(0o755)
    for name, value in {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "VLLM_MODS_LIBRARY": str(tmp_path / "library"),
        "HOME": str(place),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "PS1": "",
    }.items():
        monkeypatch.setenv(name, value)
    return place


def typed(shell: str, folder: Path, lines: list[str]) -> list[str]:
    """Type each line and TAB into a shell in a terminal; return what then stood there."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvp(START[shell][0], START[shell])  # noqa: S606
    said = b""

    def until(mark: bytes) -> None:
        nonlocal said
        end = time.monotonic() + 60
        while mark not in said:
            ready, _, _ = select.select([terminal], [], [], end - time.monotonic())
            assert ready, said.decode()
            said += os.read(terminal, 65536)

    found = []
    os.write(
        terminal, f'{SET_UP[shell]}eval "$(vllm-mods completion {shell})"; echo rea\\dy\n'.encode()
    )
    until(b"\nready")
    for n, line in enumerate(lines):
        said = b""
        # what stands in the line after TAB goes into a file, by what is put around it
        os.write(terminal, f"{line}\t".encode())
        os.write(
            terminal, b".\x01printf '%s\\n' '\x05' >> typed; echo do\\ne" + str(n).encode() + b"\n"
        )
        until(b"\ndone" + str(n).encode())
        found.append((folder / "typed").read_text().splitlines()[n].removesuffix("."))
    os.write(terminal, b"exit\n")
    os.close(terminal)
    os.waitpid(child, 0)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shell", START)
def test_in_a_terminal(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    lines = few(list(CASES), 2, f"TAB in {shell}")
    found = typed(shell, folder, lines)
    assert dict(zip(lines, found, strict=True)) == {line: CASES[line] for line in lines}


@pytest.mark.slow
def test_in_fish(folder: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish")
    lines = few(list(CASES), 2, "TAB in fish")
    script = 'vllm-mods completion fish | source; for line in $argv; echo "> $line"; complete --do-complete $line; end'
    done = subprocess.run(
        ["fish", "--no-config", "-c", script, *lines],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    answers = dict(block.split("\n", 1) for block in done.stdout.split("> ")[1:])
    for line in lines:
        last = re.split(r"[ =]", CASES[line].strip())[-1]
        found = [row.split("\t")[0] for row in answers[line].splitlines()]
        assert [one.removeprefix("--target=") for one in found] == [last]


def asked(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods"],
        env={
            **os.environ,
            "_VLLM_MODS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("vllm-mods", *words)),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [row.split(",")[1] for row in done.stdout.splitlines()]


@pytest.mark.slow
def test_commands_options_mods_and_pairings(folder: Path) -> None:
    assert folder.exists()
    assert asked("") == list(COMMANDS)
    assert "--only-supported" in asked("apply", "--")
    assert asked("show", "a-mod") == ["a-mod-of-mine"]
    assert asked("check", "--pairing", "qwen3.5-122b-hy") == ["qwen3.5-122b-hybrid"]


@pytest.mark.slow
def test_no_command_loads_what_is_slow() -> None:
    script = (
        "import os, sys\n"
        "from vllm_mods.cli import COMMANDS, run\n"
        "for name in COMMANDS:\n"
        "    os.environ['COMP_WORDS'] = f'vllm-mods {name} x'\n"
        "    assert run([]) == 0\n"
        "print({'libcst', 'git', 'docker'} & set(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "_VLLM_MODS_COMPLETE": "bash_complete", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "set()\n"


def offered(*words: str) -> list[tuple[str, str, str | None]]:
    """Return what a shell is offered for the last word: each with its kind, and what it does."""
    kind = helping.get_completion_class("bash")  # type: ignore[attr-defined]
    assert kind is not None
    items = kind(main, {}, "vllm-mods", "X").get_completions([*words[:-1]], words[-1])
    return [(item.value, item.type, item.help) for item in items]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("matrix", "--library", "x"), "file"),
        (("matrix", "--output", "x"), "file"),
        (("matrix", "--tree", "x"), "file"),
        (("export", "--output", "x"), "file"),
        (("matrix", "--vllm", "x"), None),
    ],
)
def test_a_shell_is_told_where_a_file_or_a_folder_is_meant(
    words: tuple[str, ...], kind: str | None
) -> None:
    assert offered(*words) == ([] if kind is None else [("x", kind, None)])


@pytest.mark.usefixtures("folder")
def test_a_shell_is_offered_commands_with_what_they_do_and_the_options_of_one() -> None:
    assert offered("") == [(name, "plain", words) for name, words in COMMANDS.items()]
    assert [name for name, _, _ in offered("st")] == ["status"]
    assert [name for name, _, _ in offered("--ver")] == ["--version"]
    assert ("--update-lock", "plain") in [one[:2] for one in offered("matrix", "--up")]
    assert offered("none", "x") == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("apply", "a-mod"), ["a-mod-of-mine"]),
        (("show", "a-mod"), ["a-mod-of-mine"]),
        (("show", "qwen3.5-122b-hy"), ["qwen3.5-122b-hybrid"]),
        (("lock", "qwen3.5-122b-hy"), ["qwen3.5-122b-hybrid"]),
        (("lock", "a-mod"), []),
        (("apply", "--pairing", "qwen3.5-122b-hy"), ["qwen3.5-122b-hybrid"]),
        (("template", "check", "qwen3.5-enh"), ["qwen3.5-enhanced"]),
        (("apply", "--library", "{}", "b-mod"), ["b-mod-of-mine"]),
        (("apply", "--library", "none", "a-mod"), []),
        (("explain", "no-var"), ["no-variant"]),
        (("explain", "unsupp"), ["unsupported"]),
    ],
)
def test_a_shell_is_offered_names_of_the_libraries_that_the_line_names(
    folder: Path, words: tuple[str, ...], names: list[str]
) -> None:
    more = folder.parent / "more"
    (more / "patches/b-mod-of-mine").mkdir(parents=True)
    (more / "patches/b-mod-of-mine/mod.toml").touch()
    assert [name for name, _, _ in offered(*(one.format(more) for one in words))] == names
