"""Containers by an engine's own commands: what one is, and what it says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from scripted_engine import RAW, STATE, Program

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.running import engine
from vllm_mods.running.engine import EngineContainer

if TYPE_CHECKING:
    from pathlib import Path

ONE = EngineContainer(
    "docker", "x", {"a": "b"}, True, 2, "2026-11-23T10:00:00Z", "running", command=("",)
)  # fmt: skip


def test_the_engines_that_are_here(folder: Path) -> None:
    for wanted, names in ((None, "docker and podman"), ("podman", "podman")):
        with pytest.raises(UsageError) as caught:
            engine.installed(wanted)
        assert caught.value.message == f"{names}: not installed here"
        assert caught.value.hint == "apt install podman"
    Program(folder, "podman")
    assert engine.engines_here() == engine.installed() == ("podman",)
    Program(folder, "docker")
    assert engine.installed() == ("docker", "podman")
    assert engine.installed("podman") == ("podman",)


@pytest.mark.parametrize(
    ("raw", "labels"),
    [
        ([{"Config": {"Labels": {"a": "b"}}}, {}], {"a": "b"}),
        ([{"Config": {"Labels": None}}], {}),
        ([{"Config": None}], {}),
        ([{}], {}),
    ],
)
def test_the_labels_of_an_image(docker: Program, raw: object, labels: dict[str, str]) -> None:
    assert engine.labels("docker", "x:1") is None
    docker.has(image=raw)
    assert engine.labels("docker", "x:1") == labels
    assert docker.calls == ["image inspect -- x:1"] * 2


def test_what_files_of_variables_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("C", "here")  # as engines do, a name alone has what it has here
    for name, text in (("a", "\ufeffD=4\n# X\nA=1\n  B=b=c\n"), ("b", "A=2\nC\nE\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    given = engine.variables([str(tmp_path / name) for name in "ab"])
    named = {name: text for name, text in given.items() if name in "ABCDE"}
    assert named == {"A": "2", "B": "b=c", "C": "here", "D": "4"}
    with pytest.raises(TreeError):
        engine.variables([str(tmp_path / "c")])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (RAW, ONE),
        (
            {"Name": "/x", "Config": {}, "State": {**STATE, "Running": False}},
            ONE._replace(labels={}, running=False, restarts=0),
        ),
        ({**RAW, "RestartCount": None, "Config": {"Labels": None}}, ONE._replace(labels={}, restarts=0)),
    ],
)  # fmt: skip
def test_a_container_as_its_engine_tells_it(
    docker: Program, raw: object, expected: EngineContainer
) -> None:
    docker.has(container=[raw])
    assert engine.container("x") == expected
    assert docker.calls == ["container inspect x"]


def test_those_that_run_started_are_listed_with_what_they_are(docker: Program) -> None:
    assert engine.containers("docker") == ()
    bound = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "80"}], "1/tcp": None}
    host = {"Memory": 1, "PortBindings": bound}
    ended = {**STATE, "Running": False, "Status": "exited", "ExitCode": 3, "OOMKilled": True}
    mounts = [{"Destination": "/m", "Source": "/models/m"}]
    raw = {**RAW, "State": ended, "HostConfig": host, "Mounts": mounts}
    docker.has(names="0123\n", container=[{**raw, "Path": "vllm", "Args": ["serve"]}])
    assert engine.containers("docker") == (
        ONE._replace(
            running=False, state="exited", exit_code=3, out_of_memory=True, memory=1,
            ports=("127.0.0.1:80",), command=("vllm", "serve"),
            folders={"/m": "/models/m"},
        ),
    )  # fmt: skip
    assert docker.calls[-2:] == [
        "ps --all --quiet --filter label=vllm-mods.run",
        "container inspect 0123",
    ]


def test_a_container_is_looked_for_in_each_engine(docker: Program, folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        engine.container("x")
    message, hint = "docker: no container x", "docker ps --all"
    assert (caught.value.message, caught.value.hint) == (message, hint)
    podman = Program(folder, "podman")
    with pytest.raises(UsageError, match="docker and podman: no container x"):
        engine.container("x")
    podman.has(container=[RAW])
    assert (
        engine.container("x") == engine.container("x", "podman") == ONE._replace(program="podman")
    )
    with pytest.raises(UsageError, match="docker: no container x"):
        engine.container("x", "docker")
    assert len(docker.calls) == 4


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "é"])
def test_a_name_that_no_container_has_is_not_asked_for(docker: Program, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        engine.container(name)
    assert caught.value.message == f"{name!r} is not a name for a container"
    assert caught.value.hint == "docker ps --all"
    assert not (docker.folder / "calls").exists()


def test_what_a_container_said_is_both_of_its_streams(
    docker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.has(log="said\n")
    assert engine.log(ONE) == b"said\nerror\n"
    assert engine.log(ONE, since="10:00") == b"said\nerror\n"
    assert docker.calls == ["logs x", "logs --since 10:00 x"]
    lower(monkeypatch, "LOG", 3)
    assert engine.log(ONE) == b"said"


@pytest.mark.slow
def test_a_log_that_does_not_end_is_not_waited_for(
    docker: Program, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert docker.folder.exists()
    (folder / "bin/docker").write_text("#!/bin/sh\necho first\nexec /bin/sleep 60\n")
    lower(monkeypatch, "TOOL_SECONDS", 0.1)
    start = time.monotonic()
    assert engine.log(ONE) == b"first\n"
    assert time.monotonic() - start < 20
