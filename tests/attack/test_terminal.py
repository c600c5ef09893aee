"""Escape sequences in arguments, files and answers: none reaches a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from vllm_mods.cli import COMMANDS, run, terminal

if TYPE_CHECKING:
    from pathlib import Path

TITLE = "\x1b]0;pwned\x07"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
OPTIONS = (
    *("--target", "--library", "--pairing", "--vllm", "--tree", "--format", "--output", "--to"),
    *("--jobs", "--timeout", "--base", "--lock", "fast"),
    *("--check", "--from-diff", "render", "check", "diff", "inspect"),
)
steering = st.sampled_from("\x01\x07\x08\x0b\x1b\x7f\x9b\u202e\u2066")
around = st.text(st.sampled_from("\x1b\x9b[];0am-/=,:>. "), max_size=6)
hostile = st.builds("{}{}{}".format, around, steering, around)
words = st.one_of(
    hostile,
    hostile.map("--{}".format),
    st.sampled_from(OPTIONS),
    st.builds("{}={}".format, st.sampled_from(["--target", "--jobs", "--format"]), hostile),
)


@pytest.mark.slow
@given(name=st.sampled_from([*COMMANDS, ""]), arguments=st.lists(words, min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_nothing_that_an_argument_says_reaches_the_terminal(
    name: str,
    arguments: list[str],
    capfd: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("here"))
        patch.setenv("VLLM_MODS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        run([name, *arguments] if name else arguments)
    said = capfd.readouterr()
    assert STEERING.search(said.out) is None
    assert STEERING.search(said.err) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "x", "--target", TITLE],
        ["matrix", "--jobs", TITLE],
        ["matrix", "--format", TITLE],
        [TITLE],
        [f"--{TITLE}"],
        ["apply", TITLE, "--target", "."],
        ["list", "--library", TITLE],
        ["import", TITLE],
    ],
)
def test_the_error_about_an_argument_shows_it(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) != 0
    said = capfd.readouterr().err
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "\\x1b]0;pwned\\x07" in said


def run_on_terminal(*arguments: str, cwd: Path) -> str:
    """Run the tool on a terminal and return what came out of it."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "vllm_mods", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # nobody writes any more
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    child.wait()
    return said.decode()


@pytest.mark.slow
def test_a_mod_neither_steers_nor_colours_a_terminal_and_we_still_do(tmp_path: Path) -> None:
    for name in ("plain", "evil"):
        (tmp_path / "mods/patches" / name).mkdir(parents=True)
        (tmp_path / "mods/patches" / name / "x.py").write_text("X = 1\n")
    (tmp_path / "site/vllm").mkdir(parents=True)
    (tmp_path / "site/vllm/__init__.py").touch()
    text = 'schema = 1\nname = "{}"\nversion = "1.0.0"\nsummary = "{}"\nlicense = "MIT"\n'
    text += '[evidence]\nbehaviour = "{}"\n'
    text += '[[variant]]\nid = "{}"\nvllm = ">=0.1"\noverlay = [{{ source = "x.py", path = "vllm/{}.py" }}]\n'
    evil = "\\u001b[32mapplies\\u001b[0m\\u001b]0;pwned\\u0007\\r\\u009b2J\\u202e"
    for name, said in (("plain", "s"), ("evil", evil)):
        made = text.format(name, said, said, said, f"{name}{said if name == 'evil' else ''}")
        (tmp_path / "mods/patches" / name / "mod.toml").write_text(made)
    for arguments in (
        ["list"],
        ["show", "evil"],
        ["check", "plain", "evil", "--target", "site"],
        ["matrix", "evil", "--tree", "site"],
    ):
        said = run_on_terminal(*arguments, "--library", "mods", cwd=tmp_path)
        assert "pwned" in said or "evil" in said
        rest = re.sub(r"\x1b\[(0|1|3[126])m|\r\x1b\[K|\r\n", "", said)
        assert not STEERING.search(rest), (arguments, rest)
        assert "\x1b[32mapplies\x1b[0m\x1b]" not in said
        assert ("\x1b[32m" in said) == (arguments[0] in {"check", "matrix"})


def test_what_is_a_file_of_its_own_is_printed_as_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    with terminal.streams():
        terminal.file("a\x1b[1mb\r\n")
        sys.stdout.write("a\x1b[1mb\r\udc9b\u202e\t\n")
        sys.stdout.buffer.write(b"\xc2\x9b\x07\n")
    assert capfd.readouterr().out == "a\x1b[1mb\r\na\\x1b[1mb\\x0d\\x9b\\u202e\t\n\\x9b\\x07\n"
