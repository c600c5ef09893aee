"""``export`` of mods: a folder that launchers run, whose script has vllm-mods apply the mod."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import LOADER
from mod_making import diff_of, write_mod

from vllm_mods.library import mod_folder as libraries

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    Call = Callable[..., Answer]

MORE = """
overlay = [{ source = "new.py", path = "vllm/deep/new.py" }]
templates = [{ name = "tiny", file = "tiny.jinja" }]
"""
NEW = b"# -*- coding: latin-1 -*-\nNEW = '\xff'\n"


@pytest.fixture
def mine(library: Path) -> Path:
    """A mod with two patches of one file, one of another, a new file and a template."""
    slow = LOADER.replace('"weights"', '"slow"', 1)
    first = diff_of("vllm/loader.py", LOADER, slow)
    second = diff_of(
        "vllm/loader.py", slow, "import sys\n" + slow.replace("Saver", "Keeper"), context=4
    )
    other = diff_of("vllm/a.py", "A = 1\n", "A = 'é'\n")
    folder = write_mod(library, "mine", first)
    (folder / "y.patch").write_bytes(second + other)
    (folder / "new.py").write_bytes(NEW)
    (folder / "templates/tiny").mkdir(parents=True)
    (folder / "templates/tiny/template.jinja").write_text("{{ messages }}")
    manifest = (folder / "mod.toml").read_text().replace('["x.patch"]', '["x.patch", "y.patch"]')
    (folder / "mod.toml").write_text(manifest + MORE)
    return folder


@pytest.fixture
def exported(call: Call, mine: Path, tmp_path: Path) -> Path:
    answer = call("export", "mine", "--output", tmp_path / "out/mine")
    assert answer.code == 0, answer.err
    assert mine.is_dir()
    return tmp_path / "out/mine"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a `vllm-mods` that is this one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "vllm-mods"
    root = Path(libraries.__file__).parents[2]
    program.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -m vllm_mods "$@"\n')
    program.chmod(0o755)
    return folder


def start(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the folder as launchers do, with nothing of this process around it."""
    return subprocess.run(
        ["./run.sh"], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["VLLM_SITE_PACKAGES", "PYTHON_ROOT", "VLLM_PACKAGE_DIR"])
def test_it_is_applied_once_where_the_launcher_says(
    exported: Path, site: Path, programs: Path, tmp_path: Path, variable: str
) -> None:
    place = site / "vllm" if variable == "VLLM_PACKAGE_DIR" else site
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "WORKSPACE_DIR": str(tmp_path),
        variable: str(place),
    }
    done = start(exported, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert (site / "vllm/deep/new.py").read_bytes() == NEW
    assert (tmp_path / "tiny.jinja").is_file()
    assert (site / ".vllm-mods").is_dir()
    assert start(exported, **environ).returncode == 0


@pytest.mark.slow
def test_a_tree_that_it_does_not_fit_ends_the_launch(
    exported: Path, site: Path, programs: Path
) -> None:
    (site / "vllm/loader.py").write_text("import re\n")
    path = f"{programs}:{os.environ['PATH']}"
    assert start(exported, PATH=path, VLLM_SITE_PACKAGES=str(site)).returncode == 3


def test_where_there_is_no_vllm_mods_pip_takes_its_wheel(exported: Path, tmp_path: Path) -> None:
    for name in ("dirname", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    (tmp_path / "python3").chmod(0o755)
    wheel = exported / "vllm_mods-1-py3-none-any.whl"
    wheel.touch()
    done = start(exported, PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (7, f"-m pip install --quiet {wheel}\n")


def test_what_a_mod_requires_comes_with_it(call: Call, mine: Path, tmp_path: Path) -> None:
    manifest = (mine / "mod.toml").read_text()
    (mine / "mod.toml").write_text(
        manifest.replace("[[variant]]", 'requires = ["fast"]\n[[variant]]', 1)
    )
    answer = call("export", "mine", "--output", tmp_path / "both", "--json")
    assert answer.code == 0, answer.err
    assert {"patches/fast/mod.toml", "patches/mine/mod.toml"} <= {*answer.json["files"]}


def test_a_bundled_mod_is_not_copied(call: Call, tmp_path: Path) -> None:
    answer = call("export", "hybrid-int4-fp8", "--output", tmp_path / "hybrid", "--json")
    assert answer.json["files"] == ["run.sh"]
    answer = call("import", tmp_path / "hybrid")
    assert answer.code == 2
    assert "bundled with vllm-mods" in answer.err


def test_import_takes_it_back_whole(
    call: Call, exported: Path, mine: Path, tmp_path: Path, site: Path
) -> None:
    again = tmp_path / "again"
    answer = call("import", exported, "--library", again, "--tree", site, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["verdict"] == "applies"
    back = libraries.load_mod(str(again / "patches/mine"))
    assert back.digest == libraries.load_mod(str(mine)).digest
    zipped = shutil.make_archive(str(tmp_path / "mine"), "zip", exported)
    assert call("import", zipped, "--library", tmp_path / "zip").code == 0
    assert libraries.load_mod(str(tmp_path / "zip/patches/mine")).digest == back.digest


def test_a_script_that_was_changed_is_a_script_like_another(
    call: Call, exported: Path, tmp_path: Path
) -> None:
    with (exported / "run.sh").open("a") as script:
        script.write("echo done\n")
    answer = call("import", exported, "--library", tmp_path / "again")
    assert answer.code == 2
    assert "has to run on a vLLM" in answer.err


def test_what_cannot_be_exported(call: Call, mine: Path, tmp_path: Path) -> None:
    for arguments, code, says in (
        ([], 2, "to export a mod, name its new folder"),
        (["--output", tmp_path], 3, "already exists"),
    ):
        answer = call("export", "mine", *arguments)
        assert (answer.code, says in answer.err) == (code, True), answer.err
    assert mine.is_dir()
    assert call("export", "nothing-like-it").code == 2
