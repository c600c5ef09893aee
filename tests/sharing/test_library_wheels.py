"""A library as a wheel that pip installs beside the tool: added, synced, upgraded, gone; its package never imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from git_host import mod
from installing import environment, pip, pip_install, wheel
from small_site import build

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).parents[2]
BOOM = b"import os\nopen(os.environ['IMPORTED'], 'w').close()\nraise SystemExit('imported')\n"


def library(folder: Path, version: str, text: str) -> Path:
    """Write a wheel whose package would be noticed if anything imported it."""
    files = {
        f"acme/mods/{path}": one.encode() for path, one in mod("fast", version, text=text).items()
    }
    points = b"[vllm_mods.libraries]\nacme = acme.mods\n"
    files |= {
        "acme/__init__.py": BOOM,
        "acme/mods/__init__.py": BOOM,
        "acme/mods/patches/__init__.py": BOOM,
        f"acme_mods-{version}.dist-info/entry_points.txt": points,
    }
    (folder / version).mkdir()
    return wheel(folder / version, files, version, "acme_mods")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Make an environment that has the tool, and in which pip installs."""
    executable, site = environment(tmp_path / "venv")
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("-packages"))]
    (site / "tool.pth").write_text("".join(f"{path}\n" for path in paths))
    return executable


@pytest.fixture
def call(tmp_path: Path, python: Path) -> Call:
    (tmp_path / "project").mkdir()
    environ = {name: one for name, one in os.environ.items() if not name.startswith("VLLM_MODS_")}
    environ |= {"VLLM_MODS_CACHE": str(tmp_path / "cache"), "IMPORTED": str(tmp_path / "imported")}
    environ.pop("PYTHONPATH", None)

    def do(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [python, "-m", "vllm_mods", *map(str, words)],
            cwd=tmp_path / "project",
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return do


@pytest.mark.slow
def test_a_library_that_pip_installs_upgrades_and_takes_away(
    call: Call, python: Path, tmp_path: Path
) -> None:
    site = build(tmp_path / "site")
    assert "pip install acme-mods" in call("add", "package:acme-mods", code=2).stderr
    pip_install(python, library(tmp_path, "1.0.0", "X = 1\n"))
    assert (
        "fast 1.0.0" in call("add", "package:acme-mods", "--name", "acme", "--mod", "fast").stdout
    )
    assert "fast 1.0.0 applied" in call("sync", "--target", site).stdout

    pip_install(python, library(tmp_path, "1.1.0", "X = 2\n"))
    # what was locked is kept, and stays what is synced
    call("sync", "--check", "--target", site)
    said = call("update", "--dry-run").stdout
    assert "1.0.0" in said
    assert "→ 1.1.0" in said
    call("update")
    assert "fast 1.1.0 updated" in call("sync", "--target", site).stdout
    assert (site / "vllm/fast.py").read_text() == "X = 2\n"

    # another version where nothing is kept is not taken for the one that is locked
    pip_install(python, "--force-reinstall", tmp_path / "1.0.0/acme_mods-1.0.0-py3-none-any.whl")
    (tmp_path / "cache").rename(tmp_path / "gone")
    said = call("sync", "--target", site, code=3).stderr
    assert "1.1.0" in said
    assert "vllm-mods update acme" in said
    assert (site / "vllm/fast.py").read_text() == "X = 2\n"
    pip(python, "uninstall", "-y", "acme-mods")
    assert "pip install acme-mods" in call("sync", "--target", site, code=2).stderr
    call("remove", "acme")
    assert "fast 1.1.0 reverted" in call("sync", "--target", site).stdout
    assert not (tmp_path / "imported").exists()
