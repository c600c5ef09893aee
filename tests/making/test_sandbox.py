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
def bwrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a ``bwrap`` on the path that says why it does not start; return the file with its words."""
    place = tmp_path / "bin/bwrap"
    place.parent.mkdir()
    words = tmp_path / "words"
    place.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {words}\necho one >&2; echo two >&2; exit 1\n'
    )
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}:{os.environ['PATH']}")
    return words


@pytest.mark.parametrize("user", [0, 1000])
def test_a_sandbox_sees_the_system_and_writes_to_its_places(
    bwrap: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: user)
    with pytest.raises(Refused, match=r"bubblewrap does not start here: two$") as caught:
        sandbox.run(JOB)
    assert (caught.value.hint or "").startswith(
        "--image REF runs the command in a container; or run it on"
    )
    words = f"\n{bwrap.read_text()}"
    for name in ("net", "pid", "ipc", "uts", "cgroup-try"):
        assert f"\n--unshare-{name}\n" in words
    for word in ("--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop\nALL"):
        assert f"\n{word}\n" in words
    assert ("\n--cap-add\nCAP_SETUID\n--cap-add\nCAP_SETGID\n" in words) is (user == 0)
    assert ("\n--unshare-user\n--uid\n65534\n--gid\n65534\n" in words) is (user != 0)
    for pair in ("--ro-bind\n/usr\n/usr", "--proc\n/proc", "--dev\n/dev\n--remount-ro\n/dev"):
        assert f"\n{pair}\n" in words
    for path in (*sandbox._KERNEL, "/etc/passwd", "/etc/ssl"):
        assert f"\n--ro-bind-try\n{path}\n{path}\n" in words
    for place in JOB.places:
        assert f"\n--perms\n0777\n--tmpfs\n{place}\n" in words
    assert "\n--remount-ro\n/\n--\n" in words
    assert "\n--ro-bind\n/etc\n" not in words
    assert words.index("--remount-ro\n/\n") > words.index("--tmpfs\n")


def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Refused, match=r"bubblewrap .bwrap. is not installed") as caught:
        sandbox.run(JOB)
    assert caught.value.hint == "apt-get install bubblewrap; or in a container: --image REF"


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
    with pytest.raises(Refused, match="docker cannot run a command in some/image:1: it ended"):
        sandbox.run(JOB, container)
    words = (tmp_path / "words").read_text()
    assert words.startswith("run\n--rm\n--interactive\n--pull\nnever\n")
    for pair in (
        *("--network\nnone", "--user\n0:0", "--cap-drop\nALL", "--log-driver\nnone"),
        *("--security-opt\nno-new-privileges", "--entrypoint\npython3\nsome/image:1\n-I\n-c"),
    ):
        assert pair in words
    for words_of_one in ("--pids-limit\n1000", "--workdir\n/"):
        assert f"\n{words_of_one}\n" in words
    memory = (8 << 30) + (1 << 30)
    assert f"\n--memory\n{memory}\n--memory-swap\n{memory}\n" in words
    for place in JOB.places:
        options = f"exec,size={1 << 30}"
        assert f"\n--tmpfs\n{place}:{options}\n" in words
    assert words.count("--tmpfs") == len(JOB.places)


def test_an_answer_is_read(engine: Callable[[str], ImageInEngine], tmp_path: Path) -> None:
    ran = answered(engine, tmp_path)
    assert ran == Ran(0, "hello", {"/tmp/x": b"xy"}, ("/tmp/y",), (), False, {})  # noqa: S108


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        ("seconds", "the command did not end within 5 s"),
        ("bytes", "the command wrote more than 1 GiB"),
        ("files", "the command made more than 200,000 files"),
        ("memory", "the command took more than 8 GiB of memory"),
        ("output", "the command printed more than 64 MiB"),
        ("processes", "the command started more than 1,000 processes at a time"),
    ],
)
def test_a_limit_that_a_command_is_past_is_named(
    engine: Callable[[str], ImageInEngine], tmp_path: Path, failure: str, why: str
) -> None:
    with pytest.raises(Refused) as caught:
        answered(engine, tmp_path, failure=failure)
    assert caught.value.message == f"{why}; no mod was made"
    by_hand = "run it on a copy of the tree, then vllm-mods new NAME --from-trees OLD NEW"
    assert caught.value.hint == ("--timeout SECONDS" if failure == "seconds" else by_hand)


def test_the_files_of_an_answer_follow_each_other(
    engine: Callable[[str], ImageInEngine], tmp_path: Path
) -> None:
    names = [[f"{TEMPORARY}/{name}", size] for name, size in (("a", 1), ("b", 0), ("c", 1))]
    ran = answered(
        *(engine, tmp_path),
        written=names,
        unreached=True,
        odd=[f"{TEMPORARY}/o"],
        environ={"A": "1"},
        code=9,
    )
    assert [*ran.written.values()] == [b"x", b"", b"y"]
    assert (ran.unreached, ran.odd, ran.environ, ran.code) == (
        *(True, (f"{TEMPORARY}/o",), {"A": "1"}),
        9,
    )


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/tmp/../etc/x", "../x", "/tmp", "/tmpx/y", "/tmp//x"],  # noqa: S108
)
@pytest.mark.parametrize("where", ["written", "gone", "odd"])
def test_a_forged_path_leads_nowhere(
    engine: Callable[[str], ImageInEngine], tmp_path: Path, where: str, path: str
) -> None:
    with pytest.raises(Refused, match="outside the folders"):
        answered(engine, tmp_path, **{where: [[path, 1]] if where == "written" else [path]})


def test_scripts_and_programs_can_be_run() -> None:
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(sandbox._packed(JOB))) as archive:
        modes = {member.name: member.mode for member in archive}
    assert modes == {"workspace/run.sh": 0o755, "workspace/x.py": 0o755, "tmp/a": 0o644}


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_a_run_in_bubblewrap() -> None:
    job = JOB._replace(argv=["sh", "-c", "cat x.py; rm run.sh; echo new > /tmp/b; exit 3"])
    ran = sandbox.run(job)
    assert (ran.code, ran.output) == (3, "#!/usr/bin/python3")
    assert (ran.written, ran.gone) == ({"/tmp/b": b"new\n"}, ("/workspace/run.sh",))  # noqa: S108
    ran = sandbox.run(JOB._replace(argv=["no-such-program"]))
    assert (ran.code, ran.output) == (127, "no-such-program: No such file or directory")


@pytest.mark.slow
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
    assert b"only as the first process of a sandbox" in done.stderr
