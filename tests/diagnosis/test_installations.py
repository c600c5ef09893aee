"""Where the vLLMs of this machine are looked for, and what is told of this installation."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from vllm_mods.diagnosis import diagnosis as tools, search

if TYPE_CHECKING:
    from pathlib import Path


def environment(prefix: Path) -> str:
    root = prefix / "lib/python3.12/site-packages"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm/__init__.py").touch()
    return str(root.resolve())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("prefix", "environ"),
    [
        ("work/.venv", {}),
        ("home/.local", {}),
        ("home/.local/share/uv/tools/vllm", {}),
        ("data/uv/tools/vllm", {"XDG_DATA_HOME": "data"}),
        ("tools/vllm", {"UV_TOOL_DIR": "tools"}),
        ("home/.local/share/pipx/venvs/vllm", {}),
        ("pipx/venvs/vllm", {"PIPX_HOME": "pipx"}),
        ("conda/envs/serve", {}),
        ("python", {"PATH": "python/bin"}),
        ("venv", {"VIRTUAL_ENV": "venv"}),
        ("conda", {"CONDA_PREFIX": "conda"}),
        ("python", {"PATH": "python/bin", "VIRTUAL_ENV": "venv"}),
    ],
)
def test_a_vllm_of_each_tool_is_found(
    home: Path, tmp_path: Path, prefix: str, environ: dict[str, str]
) -> None:
    root = environment(tmp_path / prefix)
    (home / ".conda").mkdir(parents=True)
    (home / ".conda/environments.txt").write_text(f"{tmp_path}/conda/envs/serve\n")
    (tmp_path / "python/bin").mkdir(parents=True)
    (tmp_path / "python/bin/python3").touch(mode=0o755)
    places = {"PATH": "none"} | environ
    found = search.installed({name: str(tmp_path / place) for name, place in places.items()})
    assert found.count(root) == 1


def test_the_vllm_of_the_active_environment_comes_first_and_once(
    home: Path, tmp_path: Path
) -> None:
    own, active = environment(home / ".local"), environment(tmp_path / "work/.venv")
    found = search.installed({"VIRTUAL_ENV": str(tmp_path / "work/.venv"), "PATH": ""})
    assert found[:2] == (active, own)


@pytest.mark.parametrize(
    ("single", "data", "origin", "place"),
    [
        ("/bin/vm.pyz", "/x/_data", "single file", "/bin/vm.pyz"),
        (None, "/x/vllm_mods/_data", "wheel", "/x/vllm_mods"),
        (None, "/src/checkout", "checkout", "/src/checkout"),
    ],
)
def test_where_this_tool_comes_from(
    monkeypatch: pytest.MonkeyPatch, single: str | None, data: str, origin: str, place: str
) -> None:
    monkeypatch.delenv(tools.SINGLE_FILE, raising=False)
    if single is not None:
        monkeypatch.setenv(tools.SINGLE_FILE, single)
    monkeypatch.setattr(tools, "data_root", lambda: data)
    mine = tools.tool()
    assert (mine.origin, mine.place, mine.git) == (origin, place, shutil.which("git"))
