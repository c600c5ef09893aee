"""``vllm-mods`` alone says what is here and what to do."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


@pytest.fixture(autouse=True)
def nothing_active(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (
        "PYTHONPATH",
        "CONDA_PREFIX",
        "VLLM_MODS_TARGET",
        "XDG_DATA_HOME",
        "UV_TOOL_DIR",
        "PIPX_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no engine


def test_the_active_vllm_is_shown_with_its_mods_and_the_next_command(
    call: Call, site: Path, tmp_path: Path
) -> None:
    place = tmp_path / "venv/lib/python3.12/site-packages"
    place.parent.mkdir(parents=True)
    site.rename(place)
    bare = call()
    assert bare.code == 0
    assert re.search(
        rf"^the active environment: vLLM .* \({place}\)\n  no mods are applied$",
        bare.out,
        re.MULTILINE,
    )
    assert f"hint: vllm-mods suggest MODEL --target {place}" in bare.err
    assert call("apply", "fast").code == 0
    assert "\n  fast 1.0.0 (variant a)\n" in call().out
    assert f"hint: vllm-mods verify --target {place}" in call().err
    (place / "vllm/loader.py").write_text("edited\n")
    changed = call()
    assert "fast 1.0.0 (variant a): was changed since it was applied" in changed.out
    assert "hint: vllm-mods revert --only-edits" in changed.err
    assert len((changed.out + changed.err).splitlines()) <= 24


def test_where_no_vllm_is_the_ways_to_one_are_shown(call: Call) -> None:
    answer = call()
    assert answer.code == 0
    assert "hint: vllm-mods check --target pypi:VERSION" in answer.err


def test_a_target_that_cannot_be_looked_into_is_told(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MODS_TARGET", "pypi:0.21.0")
    answer = call()
    assert answer.code == 0
    assert answer.out.startswith("VLLM_MODS_TARGET: pypi:0.21.0\n  ")
    assert "hint: vllm-mods doctor --target pypi:0.21.0" in answer.err


def test_environments_of_other_tools_are_found(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    places = {
        tmp_path / ".venv": ".venv here",
        home / ".local/share/uv/tools/vllm": "uv tool vllm",
        home / ".local/share/pipx/venvs/serving": "pipx serving",
        tmp_path / "conda/envs/big": "conda big",
    }
    for prefix in places:
        shutil.copytree(site, prefix / "lib/python3.12/site-packages")
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{tmp_path}/conda/envs/big\n{tmp_path}/gone\n")
    out = call().out
    for prefix, owner in places.items():
        assert re.search(
            rf"^{owner}: vLLM .* \({prefix}/lib/python3.12/site-packages\)$", out, re.MULTILINE
        )


def test_hundreds_of_environments_are_one_screen(call: Call, site: Path, tmp_path: Path) -> None:
    prefixes = [tmp_path / f"envs/{n}" for n in range(40)]
    for prefix in prefixes:
        (prefix / "lib/python3.12").mkdir(parents=True)
        shutil.copytree(site, prefix / "lib/python3.12/site-packages")
    (tmp_path / "home/.conda").mkdir(parents=True)
    (tmp_path / "home/.conda/environments.txt").write_text("\n".join(map(str, prefixes)))
    answer = call()
    assert answer.code == 0
    assert len((answer.out + answer.err).splitlines()) <= 40
    assert "and 32 more vLLMs" in answer.out


def test_a_list_of_environments_that_is_none(call: Call, tmp_path: Path) -> None:
    (tmp_path / "home/.conda").mkdir(parents=True)
    there = tmp_path / "home/.conda/environments.txt"
    there.write_bytes(b"\0\n\xff\xfe\n*\n[\n../..\n")
    assert call().code == 0
    there.unlink()
    os.mkfifo(there)
    assert call().code == 0
