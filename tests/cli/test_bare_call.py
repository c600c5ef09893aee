"""``vllm-mods`` alone, and a call without a target where several vLLMs or none are active."""

from __future__ import annotations

import os
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


def test_alone_it_prints_its_help(call: Call) -> None:
    bare = call()
    assert (bare.code, bare.out) == (0, call("--help").out)


def test_environments_of_other_tools_are_named_where_no_vllm_is_active(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.chdir(tmp_path)
    places = (
        tmp_path / ".venv",
        home / ".local/share/uv/tools/vllm",
        home / ".local/share/pipx/venvs/serving",
        tmp_path / "conda/envs/big",
    )
    for prefix in places:
        shutil.copytree(site, prefix / "lib/python3.12/site-packages")
    (home / ".conda").mkdir()
    (home / ".conda/environments.txt").write_text(f"{tmp_path}/conda/envs/big\n{tmp_path}/gone\n")
    said = call("status")
    assert said.code == 2
    for prefix in places:
        assert f"{prefix}/lib/python3.12/site-packages" in said.err


def test_a_list_of_environments_that_is_none(call: Call, tmp_path: Path) -> None:
    (tmp_path / "home/.conda").mkdir(parents=True)
    there = tmp_path / "home/.conda/environments.txt"
    there.write_bytes(b"\0\n\xff\xfe\n*\n[\n../..\n")
    assert call("doctor").code == 0
    there.unlink()
    os.mkfifo(there)
    assert call("doctor").code == 0
