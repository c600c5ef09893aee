"""``vllm-mods`` alone says what is here and what to do; what other tools call a command is understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]


@pytest.fixture(autouse=True)
def nothing_active(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PYTHONPATH", "CONDA_PREFIX", "VLLM_MODS_TARGET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))


def test_the_active_vllm_is_shown_with_its_mods_and_the_next_command(
    call: Call, site: Path, tmp_path: Path
) -> None:
    place = tmp_path / "venv/lib/python3.12/site-packages"
    place.parent.mkdir(parents=True)
    site.rename(place)
    bare = call()
    assert bare.code == 0
    assert f"({place})\n  no mods are in\n" in bare.out
    assert f"hint: vllm-mods doctor --target {place}" in bare.err
    assert call("apply", "fast").code == 0
    assert "\n  fast 1.0.0\n" in call().out
    assert f"hint: vllm-mods verify --target {place}" in call().err
    (place / "vllm/loader.py").write_text("edited\n")
    changed = call()
    assert "fast 1.0.0: went in, and is not as it was left" in changed.out
    assert "hint: vllm-mods revert --discard-edits" in changed.err
    assert len((changed.out + changed.err).splitlines()) <= 24


def test_where_no_vllm_is_the_ways_to_one_are_shown(call: Call) -> None:
    answer = call()
    assert answer.code == 0
    assert "vllm-mods check --target image:REF" in answer.out


def test_a_target_that_cannot_be_looked_into_is_told(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MODS_TARGET", "pypi:0.21.0")
    answer = call()
    assert answer.code == 0
    assert answer.out.startswith("pypi:0.21.0\n  ")
    assert "hint: vllm-mods doctor --target pypi:0.21.0" in answer.err


@pytest.mark.parametrize(
    ("typed", "meant"), [("install", "apply"), ("remove", "revert"), ("uninstall", "revert")]
)
def test_what_other_tools_call_it_is_understood(call: Call, typed: str, meant: str) -> None:
    answer = call(typed, "fast")
    assert answer.code == 2
    assert f"did you mean `{meant}`?" in answer.err
