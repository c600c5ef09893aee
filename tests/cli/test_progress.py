"""Progress is a line on stderr that takes itself back, and only where somebody watches."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from vllm_mods.cli import answers, matrix
from vllm_mods.cli.ending import complain

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    found = Terminal()
    monkeypatch.setattr("sys.stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


def test_the_last_line_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    there = terminal(monkeypatch)
    answers.show_transfer("vllm.whl", 1_000_000, 2_000_000)
    answers.show_transfer("vllm.whl", 2_000_000, 2_000_000)
    lines = there.getvalue().split("\r\033[K")
    assert lines == ["", "vllm.whl: 1.0 of 2.0 MB", "vllm.whl: 2.0 of 2.0 MB", ""]


def test_an_error_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    there = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    answers.show_transfer("vllm.whl", 1_000_000, None)
    complain("the connection was lost")
    assert there.getvalue().endswith("1.0 MB\r\033[Kerror: the connection was lost\n")


def test_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    there, file = terminal(monkeypatch), io.StringIO()
    monkeypatch.setenv("TERM", "dumb")
    answers.show_transfer("vllm.whl", 1_000_000, None)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", file)
    answers.show_transfer("vllm.whl", 1_000_000, None)
    assert not there.getvalue() + file.getvalue()


def test_a_matrix_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = terminal(monkeypatch)
    for done in range(3):
        matrix._show_progress(done, 2)
    lines = there.getvalue().split("\r\033[K")
    assert lines == ["", "0 of 2 checks", "1 of 2 checks", "2 of 2 checks", ""]


def test_an_error_has_colour_where_its_own_stream_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = terminal(monkeypatch)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    complain("it broke", "mend it")
    assert "[31m" in screen.getvalue()
    assert "[36m" in screen.getvalue()
