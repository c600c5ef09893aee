"""`matrix --executor ray` on a local cluster of two worker processes: the same bytes as without."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER
from small_site import build

from vllm_mods.cli import run as command_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORT = "36379"
RAY = os.path.join(os.path.dirname(sys.executable), "ray")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{PORT}")
    # from 2.60 on a cluster asks for a token that it writes into the home folder, which tests have none of
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    folder = tempfile.mkdtemp(
        prefix="r", dir="/tmp"
    )  # its sockets have paths of 107 letters at most
    start = ["start", "--head", "--num-cpus=2", "--port", PORT, "--include-dashboard=false"]
    # in the foreground it takes all that it has started along when it is ended
    process = subprocess.Popen(
        [RAY, *start, f"--temp-dir={folder}", "--block"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert any(b"Ray runtime started" in line for line in process.stdout)
        yield
    finally:
        process.terminate()
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def answer_of(library: Path, site: Path, *more: str) -> tuple[int, bytes, str]:
    trees = [argument for copy in sorted(site.iterdir()) for argument in ("--tree", str(copy))]
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods", "matrix", "fast", "limit", *trees, "--json", *more],
        env={**os.environ, "VLLM_MODS_LIBRARY": str(library)},
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.ray
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.usefixtures("cluster")
def test_a_cluster_gives_the_same_bytes(library: Path, tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    for number in range(4):
        loader = "\n" * number + LOADER
        build(trees / str(number), {**FILES, "vllm/loader.py": loader.encode()})
    here = answer_of(library, trees, "--jobs", "1", "--no-cache")
    there = answer_of(library, trees, "--executor", "ray", "--no-cache")
    assert here[0] == 0, here[2]
    assert b'"moved"' in here[1]
    assert there[:2] == here[:2], there[2]


@pytest.mark.parametrize(
    ("where", "words"),
    [("slurm", "no executor called 'slurm'"), ("ray", "pip install 'ray[client]'")],
)
def test_no_such_executor_is_a_wrong_call(
    where: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ray", None)
    code = command_line(
        ["matrix", "--tree", str(build(tmp_path / "site", FILES)), "--executor", where]
    )
    assert code == 2
    assert words in capfd.readouterr().err
