"""The words that start a sandbox, and what is believed of its answer."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.making import sandbox
from vllm_mods.making.recording import TEMPORARY
from vllm_mods.making.sandbox import ImageInEngine, Ran, SandboxJob

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = SandboxJob(
    argv=["true"],
    cwd="/workspace",
    environ={},
    files={"/workspace/run.sh": b"x", "/workspace/x.py": b"#!/usr/bin/python3", "/tmp/a": b"x"},  # noqa: S108
    places=["/workspace", "/tmp"],  # noqa: S108
    programs="/launcher/bin",
    seconds=5,
)
ANSWER: dict[str, Any] = {
    "failure": None,
    "code": 0,
    "output": "hello",
    "unreached": False,
    "environ": {},
    "written": [[f"{TEMPORARY}/x", 2]],
    "gone": [f"{TEMPORARY}/y"],
    "odd": [],
}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ImageInEngine]:
    """Make a ``docker`` of a shell script."""

    def make(script: str) -> ImageInEngine:
        place = tmp_path / "bin/docker"
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place.parent}:{os.environ['PATH']}")
        return ImageInEngine("docker", "some/image:1")

    return make


def answered(engine: Callable[[str], ImageInEngine], tmp_path: Path, **changed: Any) -> Ran:
    answer = tmp_path / "answer"
    answer.write_bytes(json.dumps({**ANSWER, **changed}).encode() + b"\nxy")
    return sandbox.run(JOB, engine(f"cat > /dev/null & cat {answer}"))


def test_a_container_has_no_more_than_it_needs(
    engine: Callable[[str], ImageInEngine], tmp_path: Path
) -> None:
    container = engine(f'printf "%s\\n" "$@" > {tmp_path}/words; exit 1')
    with pytest.raises(Refused, match="docker does not run a command in some/image:1"):
        sandbox.run(JOB, container)
    words = (tmp_path / "words").read_text()
    assert words.startswith("run\n--rm\n--interactive\n--pull\nnever\n")
    for pair in (
        *("--network\nnone", "--user\n65534:65534", "--cap-drop\nALL", "--log-driver\nnone"),
        *("--security-opt\nno-new-privileges", "--entrypoint\npython3\nsome/image:1\n-I\n-c"),
    ):
        assert pair in words
    for word in ("--read-only", "--pids-limit", "--memory", "--memory-swap"):
        assert f"\n{word}\n" in words
    assert words.count("--tmpfs") == len(JOB.places)


def test_an_answer_is_read(engine: Callable[[str], ImageInEngine], tmp_path: Path) -> None:
    ran = answered(engine, tmp_path)
    assert ran == Ran(0, "hello", {"/tmp/x": b"xy"}, ("/tmp/y",), (), False, {})  # noqa: S108


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/tmp/../etc/x", "../x", "/tmp", "/tmpx/y", "/tmp//x"],  # noqa: S108
)
@pytest.mark.parametrize("where", ["written", "gone", "odd"])
def test_a_forged_path_leads_nowhere(
    engine: Callable[[str], ImageInEngine], tmp_path: Path, where: str, path: str
) -> None:
    with pytest.raises(Refused, match="not among the folders"):
        answered(engine, tmp_path, **{where: [[path, 1]] if where == "written" else [path]})


def test_scripts_and_programs_can_be_run() -> None:
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(sandbox._packed(JOB))) as archive:
        modes = {member.name: member.mode for member in archive}
    assert modes == {"workspace/run.sh": 0o755, "workspace/x.py": 0o755, "tmp/a": 0o644}


@pytest.mark.usefixtures("sandboxed")
def test_a_run_in_bubblewrap() -> None:
    job = JOB._replace(argv=["sh", "-c", "cat x.py; rm run.sh; echo new > /tmp/b; exit 3"])
    ran = sandbox.run(job)
    assert (ran.code, ran.output) == (3, "#!/usr/bin/python3")
    assert (ran.written, ran.gone) == ({"/tmp/b": b"new\n"}, ("/workspace/run.sh",))  # noqa: S108
    ran = sandbox.run(JOB._replace(argv=["no-such-program"]))
    assert (ran.code, ran.output) == (127, "no-such-program: No such file or directory")


@pytest.mark.usefixtures("sandboxed")
def test_nothing_of_a_run_lies_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sandbox.run(JOB._replace(argv=["touch", f"{TEMPORARY}/left"]))
    assert list(tmp_path.iterdir()) == []
    assert not Path("/tmp/left").exists()  # noqa: S108


def test_the_supervisor_runs_in_a_sandbox_only() -> None:
    import subprocess
    import sys

    program = sandbox.program("supervise.py").decode()
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, check=False)
    assert done.returncode == 70
    assert b"first process of a sandbox only" in done.stderr
