"""Containers by an engine's own commands: what one is, what it says, how one is started and waited for."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from web_site import Site, site

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.running import engine
from vllm_mods.running.engine import EngineContainer
from vllm_mods.running.service import Service

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """#!/bin/sh
cd {0}
echo "$@" >> calls
case "$1 $2" in
"image inspect") cat image 2>/dev/null;;
"container inspect") cat container 2>/dev/null;;
logs*) printf "$(cat log)\\n"; echo error >&2;;
"run --detach")
  while [ $# -gt 0 ]; do [ "$1" = --cidfile ] && file=$2; shift; done
  [ -e identity ] && cat identity > $file
  [ -e refusal ] && {{ cat refusal >&2; exit 125; }}
  cat identity;;
esac
"""


class Program:
    """An engine's program that prints what lies in its files; ``calls`` are its words."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        program = folder / "bin" / name
        program.write_text(SCRIPT.format(self.folder))
        program.chmod(0o755)

    def has(self, **files: object) -> None:
        for name, content in files.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "cat"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


@pytest.fixture
def docker(folder: Path) -> Program:
    return Program(folder, "docker")


STATE = {"Running": True, "StartedAt": "2026-11-23T10:00:00Z"}
RAW = {"Config": {"Labels": {"a": "b"}}, "RestartCount": 2, "State": STATE}
ONE = EngineContainer("docker", "x", {"a": "b"}, True, 2, "2026-11-23T10:00:00Z")


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


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (RAW, ONE),
        (
            {"Config": {}, "State": {**STATE, "Running": False}},
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


LINE = ("docker", "run", "--detach", "--name", "x", "image")


def test_a_container_is_started_by_its_line(docker: Program) -> None:
    docker.has(identity="0123\n")
    assert engine.start(LINE, "x") == "0123"
    (call,) = docker.calls
    words = call.split()
    assert words[:3] == ["run", "--detach", "--cidfile"]
    assert words[4:] == ["--name", "x", "image"]
    assert not os.path.exists(words[3])


@pytest.mark.parametrize(
    ("refusal", "words", "hint"),
    [
        ("no space\n\nRun 'docker run --help' for more", "no space", "docker info"),
        ("could not select driver: GPU", "could not select driver: GPU", "--gpus none, if this machine has no GPU"),
        ("NVIDIA", "NVIDIA", "--gpus none, if this machine has no GPU"),
    ],
)  # fmt: skip
def test_a_container_that_does_not_start_leaves_nothing(
    docker: Program, refusal: str, words: str, hint: str
) -> None:
    docker.has(identity="0123\n", refusal=refusal)
    with pytest.raises(TreeError) as caught:
        engine.start(LINE, "x")
    message = f"docker run: {words}; the container was removed"
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert docker.calls[1:] == ["rm --force --volumes 0123"]


def test_a_name_that_is_taken_is_said(docker: Program) -> None:
    docker.has(refusal="Conflict", container=[RAW])
    with pytest.raises(UsageError) as caught:
        engine.start(LINE, "x")
    assert caught.value.message == "docker already has a container x; nothing was started"
    assert caught.value.hint == "docker stop x && docker rm x; or --name ANOTHER"
    assert docker.calls[1:] == ["container inspect x"]
    (docker.folder / "container").unlink()
    with pytest.raises(TreeError, match="docker run: Conflict; the container was removed"):
        engine.start(LINE, "x")


def planned(port: int) -> Service:
    return Service("x", "p", "i", "c", {}, (), port, port, "all", "1g", "no", (), cluster=False)


@pytest.mark.parametrize("state", [{"State": {**STATE, "Running": False}}, {"RestartCount": 1}])
def test_a_container_that_ends_is_not_waited_for(docker: Program, state: dict[str, object]) -> None:
    docker.has(container=[{**RAW, "RestartCount": 0, **state}], log=f"first{'y' * 1999}\\377\n")
    with pytest.raises(TreeError) as caught:
        engine.wait(planned(1), "docker")
    end = f"{'y' * 1992}�\nerror"
    why = f"x ended before it served; the end of its log:\n{end}"
    assert (caught.value.message, caught.value.hint) == (why, "docker logs --follow x")


def test_who_waits_asks_again_until_it_serves(
    docker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.has(container=[{**RAW, "RestartCount": 0}])
    monkeypatch.setattr(engine, "_POLL_SECONDS", 0.01)
    answers = [503, 500, 200]
    with site({"/health": lambda to: to.say(answers.pop(0))}) as (url, _):
        engine.wait(planned(int(url.rpartition(":")[2])), "docker")
    assert answers == []
    assert docker.calls == ["container inspect x"] * 2


def test_a_server_that_does_not_answer_does_not_serve_yet(
    docker: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.has(container=[{**RAW, "RestartCount": 1}], log="hangs")
    monkeypatch.setattr(engine, "_HEALTH_SECONDS", 0.05)
    silent = threading.Event()
    start = time.monotonic()

    def hang(_site: Site) -> None:
        silent.wait(30)

    with site({"/health": hang}) as (url, _):
        with pytest.raises(TreeError, match="ended before it served"):
            engine.wait(planned(int(url.rpartition(":")[2])), "docker")
        silent.set()
    assert time.monotonic() - start < 20


def test_who_waits_gives_up_in_the_end(docker: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.has(container=[{**RAW, "RestartCount": 0}])
    monkeypatch.setattr(engine, "_POLL_SECONDS", 0.01)
    lower(monkeypatch, "START_SECONDS", 0.05)
    with pytest.raises(TreeError) as caught:
        engine.wait(planned(1), "docker")
    assert caught.value.message == "x did not serve within 0.05 seconds"
    assert caught.value.hint == "docker logs --follow x"
    assert set(docker.calls) == {"container inspect x"}
