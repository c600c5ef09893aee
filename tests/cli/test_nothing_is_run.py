"""What lies in a tree, a library, an archive or an image is read, and nothing of it is run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from command_line import FILES, LOADER
from histories import git
from making_images import Image, from_disk, layer as tar_of
from mod_making import diff_of, write_mod
from package_server import make_sdist, make_wheel
from paired import NAME, library as paired_library
from small_site import build
from watching import watched

from vllm_mods.fit import checker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SITE = "usr/local/lib/python3.12/dist-packages"
# Modules that this tool imports, and that Python would look for in the current folder first.
SHADOWS = ("json.py", "typing.py", "tomllib.py", "zipfile.py", "click.py", "libcst.py", "gc.py")
HOOKS = (
    "setup.py", "conftest.py", "sitecustomize.py", "usercustomize.py", "pip/__init__.py", "pip/__main__.py",
    "vllm/__init__.py", "vllm/__main__.py", "vllm/_version.py", "vllm/loader.py", "vllm/other.py",
    "unittest/__main__.py", "vllm_mods.py", "libcst/__init__.py",
)  # fmt: skip


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "was-run"


@pytest.fixture
def hostile(tmp_path: Path, mark: Path) -> Path:
    """Make a tree in which every file that anything might run says that it was."""
    evil = f"open({str(mark)!r}, 'a').write(__file__ if '__file__' in dir() else 'x')\n"
    files = {name: evil.encode() for name in (*SHADOWS, *HOOKS)}
    files |= {
        "vllm/loader.py": f"{evil}{LOADER}".encode(),
        "vllm/other.py": f"{evil}{FILES['vllm/other.py'].decode()}".encode(),
        "vllm/_version.py": f"__version__ = version = '0.19.1'\n{evil}".encode(),
        "vllm/a.py": b"A = 1\n",
        "vllm/b.py": b"B = 1\n",
        "evil.pth": f"import os; {evil}".encode(),
        "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n',
        "pip.conf": b"[global]\nindex-url = https://localhost:1/simple\n",
        ".netrc": b"machine localhost login a password b\n",
    }
    return build(tmp_path / "hostile", files)


@pytest.fixture
def mods(tmp_path: Path, hostile: Path, mark: Path) -> Path:
    """Make a library: its patch adds imports that would run something if they were asked for."""
    folder = tmp_path / "hostile-library"
    before = (hostile / "vllm/loader.py").read_text()
    after = before.replace(
        "import os\n",
        "import os\nimport antigravity\nfrom unittest import __main__\nimport vllm.other\nimport setup\n",
        1,
    ).replace('"weights"', '"fast"', 1)
    place = write_mod(folder, "fast", diff_of("vllm/loader.py", before, after))
    for name in ("setup.py", "conftest.py", "__init__.py", "run.sh"):
        (place / name).write_text(f"open({str(mark)!r}, 'w')\n")
    return folder


def targets(hostile: Path, tmp_path: Path, mark: Path) -> dict[str, str]:
    files = {str(path.relative_to(hostile)): path.read_bytes() for path in hostile.rglob("*.py")}
    wheel = tmp_path / "vllm-0.19.1-py3-none-any.whl"
    wheel.write_bytes(make_wheel(files, bulk={}))
    sdist = tmp_path / "vllm-0.19.1.tar.gz"
    sdist.write_bytes(make_sdist(files))
    things = {f"{SITE}/{path}": thing for path, thing in from_disk(hostile).items()}
    layout = Image([tar_of(things)], {"Env": ["PATH=/usr/local/bin"]}).layout(tmp_path / "layout")
    git(hostile, "init", "-q")
    git(hostile, "add", "-f", "vllm")
    git(hostile, "commit", "-qm", "one")
    for key in ("core.fsmonitor", "core.pager", "diff.external"):
        git(hostile, "config", key, f"touch {mark};")
    return {
        "folder": str(hostile),
        "wheel": f"wheel:{wheel}",
        "sdist": f"sdist:{sdist}",
        "git": f"git:{hostile}@HEAD",
        "image": f"image:oci:{layout}",
    }


@pytest.mark.slow
def test_checking_and_applying_runs_nothing_of_what_is_read(
    call: Callable[..., Any], hostile: Path, mods: Path, mark: Path, tmp_path: Path
) -> None:
    kinds = targets(hostile, tmp_path, mark)
    for kind, target in kinds.items():
        with watched() as seen:
            answer = call("check", "fast", "--library", mods, "--target", target)
        assert "fast" in answer.out + answer.err, kind
        assert not [one for one in seen if "'git'" not in one], kind
    steps: tuple[tuple[object, ...], ...] = (
        ("check", "fast", "--library", mods, "--json"),
        ("apply", "fast", "--library", mods, "--strict-version"),
        ("status",),
        ("verify",),
        ("revert",),
    )
    for arguments in steps:
        with watched() as seen:
            call(*arguments, "--target", hostile)
        assert not seen, arguments
    assert not mark.exists(), mark.read_text()


def test_the_watch_would_see_it(hostile: Path) -> None:
    with watched() as seen:
        exec(compile("x = 1", str(hostile / "setup.py"), "exec"), {})  # noqa: S102
        subprocess.run([sys.executable, "-c", ""], check=True)
    events = [one.split(":")[0] for one in seen]
    assert events[:2] == ["exec", "subprocess.Popen"]
    assert set(events[2:]) <= {"os.posix_spawn"}  # so Python 3.14 starts it


@pytest.mark.slow
def test_the_current_folder_is_no_place_to_import_from(hostile: Path, mark: Path) -> None:
    """``python -m`` puts it first, where a tree has a ``typing.py``."""
    (hostile / "vllm_mods.py").unlink()  # against that one only the script helps, and `python -P`
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods", "check", "--target", str(hostile), "--json"],
        cwd=hostile,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert '"schema": 1' in done.stdout, done.stderr
    assert not mark.exists(), mark.read_text()


@pytest.mark.slow
def test_building_runs_nothing_of_the_base(
    call: Callable[..., Any],
    hostile: Path,
    mark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    base = targets(hostile, tmp_path, mark)["image"].removeprefix("image:")
    folder = paired_library(tmp_path / "paired", "base:1")
    place = tmp_path / "made"
    for arguments in (
        ("lock", NAME, "--base", base),
        ("build", NAME, "--base", base, "--output", f"oci:{place}"),
    ):
        with watched() as seen:
            answer = call(*arguments, "--library", folder)
        assert answer.code == 0, answer.err
        # the type checker reads the patched files, and runs none
        assert [one for one in seen if f"Popen: ('{checker.program()}'" not in one] == []
    assert (place / "index.json").exists()
    assert not mark.exists(), mark.read_text()
