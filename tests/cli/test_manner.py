"""Quiet and verbose, before a command and behind it; colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


def test_the_version_has_a_short_name(call: Call) -> None:
    assert call("-V").out == call("--version").out == f"vllm-mods {__version__}\n"


@pytest.mark.parametrize("before", [True, False])
def test_quiet_leaves_the_answer_and_what_is_wrong(
    *, before: bool, call: Call, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quietly(*words: object) -> Answer:
        return call("-q", *words) if before else call(*words, "--quiet")

    monkeypatch.setenv("VLLM_MODS_TARGET", str(site / "nothing"))
    refused = quietly("check", "fast")
    assert refused.code == 2
    assert refused.err == call("check", "fast").err
    (site / "vllm/loader.py").write_text("gone\n")
    loud, quiet = (
        call("check", "fast", "--target", site),
        quietly("check", "fast", "--target", site),
    )
    assert (quiet.code, quiet.out, quiet.err) == (1, loud.out, "")
    assert "hint:" in loud.err


def test_verbose_shows_where_an_error_comes_from(call: Call, tmp_path: Path) -> None:
    words = ("evidence", "fast", "--log", tmp_path / "none")
    assert "Traceback" not in call(*words).err
    for answer in (call(*words, "-v"), call("--verbose", *words)):
        assert answer.code == 2
        assert "FileNotFoundError" in answer.err
        assert answer.err.index("Traceback") < answer.err.index("error: ")


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


def test_options_are_for_every_command(call: Call) -> None:
    assert call("template", "list", "-q", "-v").code == 0
    assert "--quiet" in call("--help").out
    assert "--quiet" not in call("list", "--help").out
