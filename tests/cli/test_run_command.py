"""`run`, `ps` and `export --format`, with a docker that is a script."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import yaml
from paired import NAME, Caller
from test_lock_and_build import caller
from web_site import site

from vllm_mods.api.access import Access
from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.running import engine, starting

if TYPE_CHECKING:
    from pathlib import Path

DOCKER = """#!/bin/bash
echo "$*" >>{0}/calls
case "$1 $2" in
'image inspect') [ -e {0}/image.json ] && exec /bin/cat {0}/image.json; exit 1;;
'container inspect') [ "$3" = small -o "$3" = 0123 ] && exec /bin/cat {0}/container.json; exit 1;;
'logs small' | 'logs --since') exec /bin/cat {0}/log;;
'run --detach') echo 0123456789abcdef;;
'ps --all') echo 0123;;
update*) ;;
stop*) ;;
*) echo "what?" >&2; exit 125;;
esac
"""
FORM, READY = "INFO 11-23 10:00:00", "[api_server.py:6] Starting vLLM server on :8000\n"
EVIDENCE = "\n[evidence]\nlog = 'patched \\d+'\n"


class Docker:
    """A docker that has an image and a container, or not; ``calls`` has what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "docker"
        program.write_text(DOCKER.format(folder))
        program.chmod(0o755)
        (folder / "log").write_text("")

    def image(self, lock: str | None) -> None:
        labels = {} if lock is None else {"vllm-mods.lock": lock}
        (self.folder / "image.json").write_text(json.dumps([{"Config": {"Labels": labels}}]))

    def container(
        self,
        *,
        running: bool = True,
        log: str = "",
        lock: str = "",
        port: str = "",
        typed: str = "",
        cache: str = "",
    ) -> None:
        labels = {"vllm-mods.run": NAME, "vllm-mods.lock": lock, "vllm-mods.typed": typed}
        config = {"Labels": labels}
        state = {"Running": running, "StartedAt": "2026-11-23T10:00:00Z"}
        state |= {"Status": "running" if running else "exited", "ExitCode": int(not running)}
        told = {"Name": NAME, "State": state, "RestartCount": 0, "Config": config}
        at = dict(zip(("HostIp", "HostPort"), port.split(":"), strict=False))
        told["HostConfig"] = {"PortBindings": {"8000/tcp": [at] if port else []}}
        mounted = {"Source": cache, "Destination": "/root/.cache/huggingface"}
        told["Mounts"] = [mounted] if cache else []
        (self.folder / "container.json").write_text(json.dumps([told]))
        (self.folder / "log").write_text(log)

    @property
    def calls(self) -> list[str]:
        place = self.folder / "calls"
        return place.read_text().splitlines() if place.exists() else []


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    found = Docker(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(found.folder))
    nobody = mock.Mock(side_effect=TreeError("no docker engine responds"))
    monkeypatch.setattr(Access, "open", nobody)
    return found


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    monkeypatch.setenv("HF_HOME", "/hub")
    found = caller(tmp_path, capfd, monkeypatch)
    manifest = found.library / "patches/patching/mod.toml"
    manifest.write_text(manifest.read_text().replace("[[variant]]", f"{EVIDENCE}[[variant]]"))
    found("lock", NAME, "--base", found.base)
    return found


def lock_on(call: Caller, base: str) -> None:
    """Have the pairing name a base that anybody can open, and lock it."""
    pairing = call.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("base:1", base))
    call("lock", NAME)


def digest(call: Caller) -> str:
    return hashlib.sha256(call.lock.read_bytes()).hexdigest()


@pytest.mark.slow
def test_run_starts_the_image_of_the_lock(call: Caller, docker: Docker) -> None:
    docker.image(f"sha256:{digest(call)}")
    said = call("run", NAME, "--env-file", "/e", "--", "--max-model-len", 512)
    assert said.out == "small: docker 0123456789ab, http://127.0.0.1:8000\n"
    assert said.err.endswith("\nhint: docker logs --follow small\n")
    why = "no docker engine responds\n"
    assert (
        f"note: the container is started although its serve command was not checked: {why}"
        in said.err
    )
    tag = f"small:0.19.1-{digest(call)[:12]}"
    rest = (
        "--gpus all --shm-size 16g --publish 127.0.0.1:8000:8000 --volume /hub:/root/.cache/huggingface "
        f"--env-file /e {tag} --max-model-len 512"
    )
    asked, run = docker.calls
    assert asked == f"image inspect -- {tag}"
    assert re.sub(r" --cidfile \S+ --label vllm-mods.typed=.*? --name", " --name", run) == (
        f"run --detach --name small --label vllm-mods.run=small --restart on-failure:3 {rest}"
    )


def test_print_shows_the_line_and_asks_nobody(call: Caller, docker: Docker) -> None:
    said = call("run", NAME, "--print", "--gpus", "none", "--port", 80, "--image", "mine:1")
    assert said.out.startswith("docker run --detach --name small ")
    assert said.out.endswith(" mine:1\n")
    assert "--publish 127.0.0.1:80:8000" in said.out
    assert docker.calls == []


@pytest.mark.slow
def test_an_image_that_is_not_there_or_not_of_the_lock_is_not_started(
    call: Caller, docker: Docker
) -> None:
    gone = call("run", NAME, code=2)
    assert "docker: image small:0.19.1-" in gone.err
    assert gone.err.endswith("hint: vllm-mods build small\n")
    other = call("run", NAME, "--lock", call.lock, "--image", "far:1", code=2)
    assert other.err.endswith("hint: docker pull far:1\n")
    named = call("run", NAME, "--lock", call.lock, code=2)
    assert named.err.endswith(f"hint: vllm-mods build small --lock {call.lock}\n")
    for lock in (None, "sha256:other"):
        docker.image(lock)
        assert "built from another lock" in call("run", NAME, code=3).err
    assert not [line for line in docker.calls if line.startswith("run")]


@pytest.mark.slow
def test_wait_ends_with_the_evidence(call: Caller, docker: Docker) -> None:
    docker.image(f"sha256:{digest(call)}")
    docker.container(log="(Worker pid=9) INFO 11-23 10:00:00 [a.py:1] patched 7\n")
    with site({"/health": lambda one: one.say(200)}) as (url, _):
        port = url.rpartition(":")[2]
        said = call("run", NAME, "--port", port, "--wait")
        assert said.out.splitlines()[1:] == [
            "patching: its code ran: patched 7",
            "writing: a log cannot show whether its code ran; its mod.toml names no evidence",
        ]
        assert "update --restart unless-stopped small" in docker.calls
        docker.container(
            log=f"(Worker pid=9) {FORM} [a.py:1] patched 7\n(APIServer pid=1) {FORM} {READY}"
        )
        assert call("ps").out.splitlines()[1].endswith("  ran, no evidence")
        docker.container(log="")
        assert (
            "patching: the log does not mention the mod"
            in call("run", NAME, "--port", port, "--wait", code=1).out
        )


@pytest.mark.slow
def test_wait_says_why_a_container_ended(call: Caller, docker: Docker) -> None:
    docker.image(f"sha256:{digest(call)}")
    docker.container(running=False, log="RuntimeError: no GPU\n")
    said = call("run", NAME, "--port", 1, "--wait", code=1)
    assert (
        "small ended before it served: the log has no exception; its end:\nRuntimeError: no GPU"
        in said.err
    )
    listed = call("ps")
    assert listed.out.splitlines()[1].split() == ["small", "docker", "exited", "(1)", "small", "-"]
    assert listed.err == "\nhint: docker logs small\n"


@pytest.mark.slow
def test_wait_has_an_end(call: Caller, docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "START_SECONDS", limits.Limit(0, "seconds", "x"))
    docker.image(f"sha256:{digest(call)}")
    docker.container()
    assert "did not serve within 0 seconds" in call("run", NAME, "--port", 1, "--wait", code=1).err


@pytest.mark.slow
def test_a_start_shows_each_change_once(
    call: Caller, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.image(f"sha256:{digest(call)}")
    docker.container(log="Starting to load model")
    monkeypatch.setattr(starting, "_POLL_SECONDS", 0.01)
    answers = [503, 503, 200]
    with site({"/health": lambda one: one.say(answers.pop(0))}) as (url, _):
        said = call("run", NAME, "--port", url.rpartition(":")[2], "--wait", code=1)
    assert said.err.count("\n   0 s  loads the model\n") == 1


@pytest.mark.slow
def test_without_an_engine_it_is_said(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "docker and podman: not installed here" in call("run", NAME, code=2).err


@pytest.mark.slow
def test_export_writes_what_starts_the_image(call: Caller, tmp_path: Path) -> None:
    place = tmp_path / "compose.yaml"
    call("export", NAME, "--format", "compose", "--output", place)
    (one,) = yaml.safe_load(place.read_text())["services"].values()
    assert one["image"] == f"small:0.19.1-{digest(call)[:12]}"
    assert '\n    image: "mine:1"\n' in (
        call("export", NAME, "--format", "compose", "--image", "mine:1").out
    )
    used = call("export", NAME, "--port", 80, code=2)
    assert "the options from --restart to --lock are for a compose file only" in used.err


@pytest.mark.slow
def test_a_cluster_is_exported_as_two_nodes_and_not_run(call: Caller, tmp_path: Path) -> None:
    pairing = call.library / f"pairings/{NAME}.toml"
    pairing.write_text(pairing.read_text().replace("command =", 'topology = "cluster"\ncommand ='))
    call("lock", NAME, "--base", call.base)
    said = call("run", NAME, code=2)
    assert said.err.endswith("hint: vllm-mods export small --format compose\n")
    place = tmp_path / "compose.yaml"
    call("export", NAME, "--format", "compose", "--output", place)
    nodes = yaml.safe_load(place.read_text())["services"]
    assert sorted(nodes) == ["small-head", "small-worker"]
    head = nodes["small-head"]["entrypoint"][-1]
    assert "ray start --head" in head
    assert "vllm serve org/small --chat-template /" in head


@pytest.mark.slow
def test_up_prints_what_is_left_to_do(call: Caller, docker: Docker) -> None:
    """A plan of three steps: what holds already is told, and has no command."""
    run = "vllm-mods run small --gpus none --wait --replace"
    lock_on(call, call.base)
    said = call("up", NAME, "--gpus", "none", "--print")
    tag = f"small:0.19.1-{digest(call)[:12]}"
    assert [line[:12].strip().split(None, 1) for line in said.err.splitlines()[-3:]] == [
        ["lock", "done"],
        ["build", "to do"],
        ["run", "to do"],
    ]
    assert f"no engine here has {tag}" in said.err
    assert said.out.splitlines() == ["vllm-mods build small", run]
    docker.image(f"sha256:{digest(call)}")
    docker.container(lock=f"sha256:{digest(call)}", port="127.0.0.1:9000")
    other = call("up", NAME, "--gpus", "none", "--print")
    assert other.out.splitlines() == [run]
    assert other.err.endswith("\nrun    to do  small runs with another image or other options\n")
    docker.container(running=False, lock=f"sha256:{digest(call)}", port="127.0.0.1:9000")
    assert "\nrun    to do  small is exited\n" in call("up", NAME, "--print", "--port", 9000).err
    docker.container(lock=f"sha256:{digest(call)}", port="127.0.0.1:9000")
    at = call("up", NAME, "--print", "--port", 9000)
    assert (at.out, at.err.splitlines()[-1]) == ("", "run    done   small already runs")
    behind = call("up", NAME, "--print", "--port", 9000, "--", "--max-model-len", 8)
    assert behind.out.endswith("--wait --replace -- --max-model-len 8\n")
    lock = f"sha256:{digest(call)}"
    docker.container(lock=lock, port="127.0.0.1:9000", typed="run small -- --max-model-len 8")
    assert not call("up", NAME, "--print", "--port", 9000, "--", "--max-model-len", 8).out
    assert call("up", NAME, "--print", "--port", 9000).out.endswith("--wait --replace\n")
    with call.lock.open("a") as file:
        file.write("\n")
    assert (
        call("up", NAME, "--print", "--port", 9000).out.splitlines()[0] == "vllm-mods build small"
    )
    pairing = call.library / f"pairings/{NAME}.toml"
    text = pairing.read_text().replace(call.base, "other:1")
    pairing.write_text(text.replace('small.jinja"', 'small.jinja --port 9"'))
    other = call("up", NAME, "--print", code=3)
    assert f"its base is {call.base}, but the pairing names other:1" in other.err
    call.lock.unlink()
    said = call("up", NAME, "--print")
    assert "\nlock   to do  " in f"\n{said.err}"
    assert said.out.splitlines()[:2] == ["vllm-mods lock small", "vllm-mods build small"]
    assert not [line for line in docker.calls if line.startswith("run")]


@pytest.mark.slow
def test_a_container_that_was_started_otherwise_is_not_as_planned(
    call: Caller, docker: Docker, tmp_path: Path
) -> None:
    lock_on(call, call.base)
    lock = f"sha256:{digest(call)}"
    docker.image(lock)
    at: dict[str, Any] = {"lock": lock, "port": "127.0.0.1:9000", "cache": f"{tmp_path}/old"}
    words = ("--port", 9000, "--model-cache", tmp_path / "old")
    for typed, options, is_same in (
        ("", (), True),
        ("run small --gpus all --shm-size=16g -- --gpus none", ("--", "--gpus", "none"), True),
        ("up small --gpus none", ("--gpus", "none"), True),
        ("run small --gpus none", (), False),
        ("run small", ("--gpus", "0"), False),
        ("run small", ("--shm-size", "32g"), False),
        ("run small --restart no", ("--restart", "always"), False),
        ("run small", ("--model-cache", tmp_path / "new"), False),
    ):
        docker.container(typed=typed, **at)
        done = call("up", NAME, "--print", *words, *options)
        assert ("small already runs" in done.err) is is_same, (typed, options)


@pytest.mark.slow
def test_up_waits_for_what_runs_already(call: Caller, docker: Docker) -> None:
    lock_on(call, call.base)
    docker.image(f"sha256:{digest(call)}")
    with site({"/health": lambda one: one.say(200)}) as (url, _):
        port = url.rpartition(":")[2]
        log = "(Worker pid=9) INFO 11-23 10:00:00 [a.py:1] patched 7\n"
        docker.container(log=log, lock=f"sha256:{digest(call)}", port=f"127.0.0.1:{port}")
        said = call("up", NAME, "--port", port)
    assert "\npatching: its code ran: patched 7\n" in said.out
    assert not [line for line in docker.calls if line.startswith("run")]


@pytest.mark.slow
def test_up_asks_once_which_engine_has_the_image(
    call: Caller, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_on(call, call.base)
    docker.image(f"sha256:{digest(call)}")
    start = mock.Mock(return_value="01")
    monkeypatch.setattr(starting, "start", start)
    with site({"/health": lambda one: one.say(200)}) as (url, _):
        log = "(Worker pid=9) INFO 11-23 10:00:00 [a.py:1] patched 7\n"
        docker.container(log=log, lock=f"sha256:{digest(call)}", port="127.0.0.1:1")
        call("up", NAME, "--port", url.rpartition(":")[2])
    assert start.call_args.kwargs == {"replace": True}
    assert sum(line.startswith("image inspect") for line in docker.calls) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("docker")
def test_an_image_of_another_lock_does_not_hide_the_one_of_the_lock(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is podman's, while docker has another image by its name."""
    held = {"docker": {"vllm-mods.lock": "sha256:other"}, "podman": None}
    monkeypatch.setattr(engine, "installed", lambda _wanted: tuple(held))
    monkeypatch.setattr(engine, "labels", lambda program, _image: held[program])
    other = call("run", NAME, code=3)
    assert (
        "but that image was built from another lock (sha256:other); nothing was started"
        in other.err
    )
    held["podman"] = {"vllm-mods.lock": f"sha256:{digest(call)}"}
    monkeypatch.setattr(starting, "start", lambda *_, **__: "0123")
    assert call("run", NAME).out == "small: podman 0123, http://127.0.0.1:8000\n"
