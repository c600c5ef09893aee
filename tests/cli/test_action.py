"""``action.yml``: its steps run by bash as GitHub's runner would, with hostile inputs too."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., "subprocess.CompletedProcess[str]"]

FILE = Path(__file__).parents[2] / "action.yml"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="only a checkout has action.yml")


@functools.cache
def action() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def step(name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(step for step in action()["runs"]["steps"] if step["name"] == name)
    return found


def expression(text: str, inputs: dict[str, str]) -> str:
    """Fill in ``${{ inputs.NAME }}`` as the runner does, from what was given and the defaults."""

    def value(match: re.Match[str]) -> str:
        scope, _, name = match[1].partition(".")
        if scope != "inputs":
            return sys.executable  # steps.python.outputs.python-path
        default: str = action()["inputs"][name]["default"]
        return inputs.get(name, default)

    return re.sub(r"\$\{\{ (\S+) \}\}", value, text)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    tool = tmp_path / "runner/vllm-mods/bin/vllm-mods"
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vllm_mods "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "work").mkdir()
    for name in ("VLLM_MODS_LIBRARY", "WORKSPACE_DIR"):
        monkeypatch.delenv(name, raising=False)
    env = {
        **os.environ,
        "GITHUB_ACTION_PATH": str(FILE.parent),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "RUNNER_TEMP": str(tmp_path / "runner"),
        "VLLM_MODS_CACHE": str(tmp_path / "cache"),
    }

    def do(name: str = "Check the mods", **inputs: str) -> subprocess.CompletedProcess[str]:
        one = step(name)
        script = tmp_path / "script.sh"
        script.write_text(one["run"])
        assert one["shell"] == "bash"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            env=env | {key: expression(value, inputs) for key, value in one["env"].items()},
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
        )

    return do


def test_no_input_is_ever_part_of_a_script() -> None:
    for one in action()["runs"]["steps"]:
        assert "${{" not in one.get("run", "")
        assert re.search(r"@[0-9a-f]{40}\b", one.get("uses", "@" + "0" * 40))


def test_every_input_is_used_and_every_used_one_is_there() -> None:
    used = set(re.findall(r"\$\{\{ inputs\.(\S+) \}\}", FILE.read_text()))
    assert used == set(action()["inputs"])
    assert all("description" in one for one in action()["inputs"].values())


@pytest.mark.slow
def test_a_matrix_is_printed_summed_up_and_written(
    run: Run, library: Path, site: Path, tmp_path: Path
) -> None:
    done = run(
        library=str(library), mods="fast limit", tree=f"{site}\n", report="r.xml", format="junit"
    )
    assert done.returncode == 0, done.stderr
    assert "fast 1.0.0" in done.stdout
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("**")
    assert "| `fast` `1.0.0` |" in summary
    assert (tmp_path / "work/r.xml").read_text().startswith("<?xml")


@pytest.mark.slow
def test_what_does_not_fit_fails_the_step_and_is_summed_up(
    run: Run, library: Path, site: Path, tmp_path: Path
) -> None:
    (site / "vllm/loader.py").write_text("import os\n")
    inputs = {"library": str(library), "mods": "fast", "tree": str(site), "report": "page.html"}
    done = run(**inputs)
    assert done.returncode == 1
    assert "patches/fast/mod.toml,title=fast%3A missing::missing on " in done.stdout
    assert "✗ **missing**" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "work/page.html").exists()
    assert run(library=str(library), mods="fast", target=str(site)).returncode == 1
    assert "~~~~~~~~text\nvLLM " in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_what_does_not_fit_one_tree_is_shown_in_the_change_and_written(
    run: Run, library: Path, site: Path, tmp_path: Path
) -> None:
    (site / "vllm/loader.py").write_text("import os\n")
    inputs = {"library": str(library), "mods": "fast", "target": str(site), "report": "found.txt"}
    done = run(**inputs)
    assert done.returncode == 1
    shown = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert shown
    assert all("patches/fast/mod.toml" in line for line in shown)
    assert (tmp_path / "work/found.txt").read_text().startswith("vLLM ")
    assert (tmp_path / "output").read_text() == "report=found.txt\n"
    github = run(**inputs | {"format": "github"})
    assert github.returncode == 1
    assert (tmp_path / "work/found.txt").read_text().startswith("::error ")
    assert run(**inputs | {"format": "html"}).returncode == 2  # which only a matrix has


@pytest.mark.slow
def test_strict_and_versions_reach_the_tool(run: Run, library: Path, site: Path) -> None:
    strict = run(library=str(library), mods="fast", tree=str(site), strict="true")
    assert strict.returncode == 1
    assert "stale-lock" in strict.stdout
    wrong = run(library=str(library), vllm="nonsense", mods="fast", tree=str(site), pairing="none")
    assert wrong.returncode == 2
    assert "`none`" in wrong.stderr


EVIL = ["$(touch pwned)", "`touch pwned`", '"; touch pwned; "', "'; touch pwned #", "--help", "*"]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("name", ["mods", "library", "pairing", "vllm", "tree", "target", "format"])
def test_an_input_is_data(run: Run, tmp_path: Path, site: Path, name: str, evil: str) -> None:
    inputs = {"mods": "qwen3.5-enhanced", "tree": str(site), "report": "r\nx=1", name: evil}
    assert run(**inputs).returncode == 2
    inputs["report"] = "r"
    done = run(**inputs)
    assert not list(tmp_path.rglob("pwned"))
    assert "Usage: vllm-mods" not in done.stdout
    if name != "vllm":  # not asked for beside trees
        assert done.returncode in {1, 2}, done.stdout


def test_the_tool_comes_from_the_action_or_by_version(run: Run, tmp_path: Path) -> None:
    (tmp_path / "runner/vllm-mods/bin").rename(tmp_path / "kept")
    fake = tmp_path / "python"
    fake.write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"\n'
        'printf \'#!/bin/sh\\nfor word; do echo "$word"; done\\n\' >"$3/bin/pip"\n'
        'chmod +x "$3/bin/pip"\n'
    )
    fake.chmod(0o755)
    one = step("Install vllm-mods")
    assert one["env"]["PYTHON"] == "${{ steps.python.outputs.python-path }}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(fake))
        assert run("Install vllm-mods").stdout.splitlines()[-1] == str(FILE.parent)
        evil = run("Install vllm-mods", version="1.0; touch pwned")
    assert evil.stdout.splitlines()[-1] == "vllm-mods==1.0; touch pwned"
    assert not list(tmp_path.rglob("pwned"))
