"""What a release is made of, and the workflow that uploads it: as far as nothing has to be built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import single_file
import yaml
from release import notes

WORKFLOW = Path(__file__).parents[2] / ".github/workflows/release.yml"
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-22\n\n### Added\n\n- A.\n\n## [1.1.0]\n\n- B.\n"


def test_the_notes_are_the_section_of_the_version() -> None:
    assert notes.section(CHANGELOG, "1.2.0") == "### Added\n\n- A.\n"


@pytest.mark.parametrize("version", ["1.2", "1.1.0", "Unreleased", "1.2.0] - 2026-11-22"])
def test_a_version_that_the_changelog_does_not_date_is_not_released(version: str) -> None:
    with pytest.raises(SystemExit, match=r"CHANGELOG.md has nothing under"):
        notes.section(CHANGELOG, version)


def test_the_changelog_has_notes_for_what_is_not_released_yet() -> None:
    text = (WORKFLOW.parents[2] / "CHANGELOG.md").read_text()
    assert notes.section(text, notes.UNRELEASED).startswith("### ")


def test_a_tag_is_that_of_the_version() -> None:
    notes.check_tag("v1.2.0", "1.2.0")
    with pytest.raises(SystemExit, match=r"the tag is v1\.2\.1, and .* says 1\.2\.0"):
        notes.check_tag("v1.2.1", "1.2.0")


def stage(folder: Path, said: str, *, time: int) -> Path:
    """Make an installation that prints a word and its arguments, and beside it what depends on the machine."""
    for path, text in {
        "vllm_mods/__init__.py": "",
        "vllm_mods/__main__.py": f"import os, sys\nprint({said!r}, *sys.argv[1:])\nsys.exit(7)\n",
        "vllm_mods.dist-info/direct_url.json": str(folder),
        "vllm_mods.dist-info/RECORD": (
            "vllm_mods/__init__.py,sha256=x,0\n"
            f"vllm_mods.dist-info/direct_url.json,sha256={folder.name},9\n"
            f"../../bin/vllm-mods,sha256={folder.name},9\n"
        ),
        "bin/vllm-mods": str(folder),
    }.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (time, time))
    return folder


def test_the_single_file_runs_what_is_for_this_python(tmp_path: Path) -> None:
    stages = {
        single_file.MINE: stage(tmp_path / "mine", "mine", time=1),
        "cpython-399-x86_64-linux-gnu": stage(tmp_path / "other", "other", time=1),
    }
    output = tmp_path / "x.pyz"
    single_file.write(stages, output)
    assert os.access(output, os.X_OK)
    command = [sys.executable, str(output), "a", "b c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "mine a b c\n", "")
    with zipfile.ZipFile(output) as archive:  # its start, its list, and each file that differs
        assert len(archive.namelist()) == 2 + 4


def test_the_single_file_names_the_pythons_that_it_is_for(tmp_path: Path) -> None:
    output = tmp_path / "x.pyz"
    single_file.write({"cpython-399-x86_64-linux-gnu": stage(tmp_path / "a", "a", time=1)}, output)
    done = subprocess.run([sys.executable, output], capture_output=True, text=True, check=False)
    _, number, machine = single_file.MINE.split("-", 2)
    this = f"Python {number[0]}.{number[1:]} ({machine})"
    said = f"{output} was built for Python 3.99 (x86_64-linux-gnu), but {sys.executable} is {this}"
    hint = "start it with such a Python, or install vllm-mods for this one with pip"
    assert (done.returncode, done.stderr) == (1, f"error: {said}\n\nhint: {hint}\n")


def test_the_same_installation_is_the_same_single_file(tmp_path: Path) -> None:
    made = []
    for time in (10**9, 2 * 10**9):
        output = tmp_path / f"{time}.pyz"
        single_file.write(
            {single_file.MINE: stage(tmp_path / f"stage-{time}", "x", time=time)}, output
        )
        made.append(output.read_bytes())
    assert made[0] == made[1]
    kept = single_file.installed(tmp_path / f"stage-{time}")
    assert kept["vllm_mods.dist-info/RECORD"] == b"vllm_mods/__init__.py,sha256=x,0\n"
    assert kept.keys() == {
        "vllm_mods/__init__.py",
        "vllm_mods/__main__.py",
        "vllm_mods.dist-info/RECORD",
    }


def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    return found


def test_every_action_is_named_by_its_commit_with_the_version_beside_it() -> None:
    used = re.findall(r"uses: (.*)", WORKFLOW.read_text())
    assert used
    assert not [
        one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)+", one)
    ]


def test_no_value_is_part_of_a_script() -> None:
    scripts = [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]
    assert len(scripts) == 3
    assert not [one for one in scripts if "${{" in one]


def test_only_a_tag_is_uploaded_once_it_was_made_and_tried() -> None:
    whole = yaml.safe_load(WORKFLOW.read_text())
    assert whole["permissions"] == {}
    made = whole["jobs"].pop("make")
    assert made["permissions"] == {"contents": "read"}
    for name, job in whole["jobs"].items():
        needed = job["needs"] if isinstance(job["needs"], list) else [job["needs"]]
        assert job["if"] == "github.ref_type == 'tag'", name
        assert needed == (["index", "image"] if name == "page" else ["make"])
        # nothing of the repository is run where there is a right to write
        assert not [step for step in job["steps"] if "checkout" in step.get("uses", "")]
