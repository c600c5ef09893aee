"""The release workflow's own scripts, on a tag of a clone: all but what takes GitHub and the package index."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from making_images import Folder, Image, Thing, layer, of_platforms
from real_engines import PASSWORD, USER, libraries, need

if TYPE_CHECKING:
    from real_engines import Engine, Registry

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github/workflows/release.yml"
pytestmark = pytest.mark.network


def step(job: str, name: str) -> dict[str, Any]:
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    found: dict[str, Any] = next(one for one in jobs[job]["steps"] if one.get("name") == name)
    return found


def run(script: str, cwd: Path, environ: dict[str, str]) -> str:
    """Run a step's script as GitHub's runner does, and return what it printed."""
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=cwd,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """Return a clone whose newest commit is a release, with a tag."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(ROOT), str(clone))
    changelog = (clone / "CHANGELOG.md").read_text()
    dated = changelog.replace("## [Unreleased]", "## [9.8.7] - 2026-11-22", 1)
    (clone / "CHANGELOG.md").write_text(dated)
    package = clone / "vllm_mods/__init__.py"
    package.write_text(re.sub(r'__version__ = ".*"', '__version__ = "9.8.7"', package.read_text()))
    git(clone, "commit", "-q", "-a", "-m", "Release")
    git(clone, "tag", "v9.8.7")
    return clone


@pytest.fixture
def two_platforms(python_layer: bytes, tmp_path: Path) -> Path:
    """Return a base for two processors, whose Python anybody can run."""
    things: dict[str, Thing] = {"root": Folder(0o755)}  # a version manager's is in there
    native = importlib.util.find_spec("libcst.native")
    assert native is not None
    for path in libraries([str(native.origin)]):
        things[f"usr/lib/{Path(path).name}"] = Path(path).read_bytes()
    image = Image([python_layer, layer(things)], {"Env": ["LD_LIBRARY_PATH=/usr/lib"]})
    return of_platforms(image, tmp_path / "base", "linux/amd64", "linux/arm64")


def test_a_tag_is_made_tried_pushed_and_put_on_a_page(
    tagged: Path, two_platforms: Path, dockerd: Engine, locked_registry: Registry, tmp_path: Path
) -> None:
    need("skopeo", "docker")
    if importlib.util.find_spec("uv") is None:
        why = "the extra `release` is not installed"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    here = tmp_path / "runner"
    settings = here / "home/.config/containers/registries.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[[registry]]\nlocation = "{locked_registry.host}"\ninsecure = true\n')
    environ = dockerd.environ | {
        "GITHUB_ACTOR": USER,
        "GITHUB_OUTPUT": str(here / "output"),
        "GITHUB_REF_NAME": "v9.8.7",
        "GITHUB_REF_TYPE": "tag",
        "GITHUB_REPOSITORY": "Somebody/vllm-mods",
        "HOME": str(here / "home"),
        "RELEASE_BASE": f"oci:{two_platforms}",
        "RELEASE_PYTHON": sys.executable,
        "RUNNER_TEMP": str(here),
    }

    said = run(step("make", "Make and try")["run"], tagged, environ)
    print(said)  # noqa: T201  (what would be uploaded)
    release = here / "release"
    assert {one.name for one in (release / "index").iterdir()} == {
        "vllm_mods-9.8.7-py3-none-any.whl",
        "vllm_mods-9.8.7.tar.gz",
    }
    for line in (release / "assets/SHA256SUMS").read_text().splitlines():
        sha, name = line.split("  ")
        assert hashlib.sha256((release / "assets" / name).read_bytes()).hexdigest() == sha
        assert f"sha256:{sha}  {name}, " in said
    assert (release / "notes.md").read_text().startswith("### Added\n")
    if os.environ.get("VLLM_MODS_TEST_ALL"):
        again = run(
            step("make", "Make and try")["run"], tagged, environ | {"RUNNER_TEMP": str(tmp_path)}
        )
        assert (
            again.partition("uploaded, and was not")[2]
            == said.partition("uploaded, and was not")[2]
        )

    push = step("image", "Push")
    assert push["env"] == {"REGISTRY": "ghcr.io", "TOKEN": "${{ github.token }}"}
    run(push["run"], here, environ | {"REGISTRY": locked_registry.host, "TOKEN": PASSWORD})
    digest = (release / "image-digest").read_text().strip()
    name = f"{locked_registry.host}/somebody/vllm-mods"
    assert (here / "output").read_text() == f"name={name}\ndigest={digest}\n"
    index = subprocess.run(
        ["skopeo", "inspect", "--creds", f"{USER}:{PASSWORD}", "--raw", f"docker://{name}:9.8.7"],
        env=os.environ | environ,
        capture_output=True,
        check=True,
    ).stdout
    assert f"sha256:{hashlib.sha256(index).hexdigest()}" == digest
    platforms = [one["platform"]["architecture"] for one in json.loads(index)["manifests"]]
    assert platforms == ["amd64", "arm64"]

    fake = here / "bin/gh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    fake.chmod(0o755)
    path = f"{fake.parent}{os.pathsep}{os.environ['PATH']}"
    words = run(step("page", "Publish")["run"], here, environ | {"PATH": path}).splitlines()
    assert words[:3] == ["release", "create", "v9.8.7"]
    assert words[words.index("--notes-file") + 1] == "release/notes.md"
    uploaded = {word for word in words if word.startswith("release/assets/")}
    assert uploaded == {f"release/assets/{one.name}" for one in (release / "assets").iterdir()}


def test_what_is_not_the_tag_is_not_released(tagged: Path, tmp_path: Path) -> None:
    environ = {"RELEASE_PYTHON": sys.executable}

    def refused(*arguments: str) -> str:
        command = ["bash", ".ci/release", str(tmp_path / "out"), *arguments]
        done = subprocess.run(
            command,
            cwd=tagged,
            env=os.environ | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout
        assert not (tmp_path / "out").exists()
        return done.stderr

    assert "vllm_mods/__init__.py says 9.8.7" in refused("--tag=v9.8.8")
    (tagged / "new.py").write_text("")
    assert "what is checked out is not v9.8.7" in refused("--tag=v9.8.7")
    (tagged / "new.py").unlink()
    git(tagged, "tag", "-d", "v9.8.7")
    assert "what is checked out is not v9.8.7" in refused("--tag=v9.8.7")
    (tagged / "CHANGELOG.md").write_text("## [9.8.7] - 2026-11-22\n\n## [0.1.0]\n\n- B\n")
    git(tagged, "commit", "-q", "-a", "-m", "Without notes")
    git(tagged, "tag", "v9.8.7")
    assert "nothing under `## [9.8.7] - YYYY-MM-DD`" in refused("--tag=v9.8.7")
