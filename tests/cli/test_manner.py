"""The version, and colour."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from vllm_mods import __version__
from vllm_mods.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


def test_the_version_has_a_short_name(call: Call) -> None:
    assert call("-V").out == call("--version").out == f"vllm-mods {__version__}\n"


def test_colour_is_as_one_says(call: Call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    words = ("check", "fast", "--target", site)
    assert "\x1b[" not in call(*words).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in call(*words).out
    assert "\x1b[31m\x1b[1merror:" in call("check", "none", "--target", site).err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in call(*words).out


def test_a_stream_that_was_closed_before_is_not_flushed() -> None:
    stream = io.StringIO()
    shown = terminal.ShownText(stream)
    stream.close()
    shown.buffer.flush()
