"""Starts that fail, in real engines: each is told with its cause, and its hint leads on when it is typed as it stands."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import serve_tree
from making_images import File, Image, layer
from paired import NAME, Tool, library
from real_engines import SITE, Engine, need, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from making_images import Thing

BASE = "localhost/failing:latest"
SERVER = Path(__file__).parent.parent / "small_server.py"
QUIET = 'parser.add_argument("--quiet"'
FLAGS = "".join(
    f'parser.add_argument("--{name}", type={kind})\n        '
    for name, kind in (("gpu-memory-utilization", "float"), ("max-num-seqs", "int"))
)


class Host(NamedTuple):
    """An engine with the image of a pairing's lock, and the tool that uses it; ``port`` is that of the pairing."""

    engine: Engine
    tool: Tool
    tag: str
    model: Path
    port: int

    def run(
        self, *words: object, fail: str = "", code: int = 0, wait: bool = True, **environ: str
    ) -> CompletedProcess[str]:
        """Start the pairing; its engine fails as is wished."""
        (self.model / "fail").write_text(fail)
        options = ["--engine", self.engine.tool, "--gpus", "none", "--model-folder", self.model]
        options += ["--wait"] * wait
        return self.tool("run", NAME, *options, *words, code=code, **environ)

    def follow(self, said: CompletedProcess[str], code: int = 0) -> str:
        """Type the hint of a failure as it stands, and return what that prints."""
        program, *words = shlex.split(said.stderr.rpartition("\nhint: ")[2], comments=True)
        assert program == "vllm-mods"
        done = self.tool(*words, code=code)
        return done.stdout + done.stderr

    def state(self, form: str) -> str:
        return self.engine("container", "inspect", "-f", f"{{{{{form}}}}}", NAME)

    def remove(self) -> None:
        self.engine("rm", "--force", NAME, check=False)
        assert self.engine("ps", "-aq") == "", "a container was left behind"


def make_host(
    engine: Engine,
    folder: Path,
    paired_base: Image,
    archive_name: Callable[[Path], tuple[object, ...]],
    spec: str,
) -> Host:
    """Make a pairing for a model in a folder, and build it on a base that has our server and vLLM's flags."""
    tree = {
        f"{SITE}/{path}": data for path, data in serve_tree.FILES.items() if "_version" not in path
    }
    args = serve_tree.ARGS.replace(QUIET, f"{FLAGS}{QUIET}")
    tree[f"{SITE}/vllm/engine/arg_utils.py"] = args.encode()
    things: dict[str, Thing] = {
        "usr/local/bin/vllm": File(b"#!/usr/local/bin/python3\n" + SERVER.read_bytes(), 0o755),
        **tree,
    }
    base = Image(
        [*paired_base.layers, layer(things)], {**paired_base.settings, "Entrypoint": None}, BASE
    )
    engine(*archive_name(base.archive(folder / "base.tar")))
    tool = Tool(library(folder / "library", spec), engine.environ)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    place = tool.library / f"pairings/{NAME}.toml"
    text = place.read_text().replace("org/small", "/models/small")
    place.write_text(text.replace('.jinja"', f'.jinja --port {port}"'))
    manifest = tool.library / "patches/patching/mod.toml"
    manifest.write_text(
        manifest.read_text().replace("[[variant]]", "[evidence]\nlog = 'patched \\d+'\n[[variant]]")
    )
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["X"], "model_type": "small"}')
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    tool("lock", NAME)
    return Host(engine, tool, tool.json("build", NAME)["tag"], model, port)


@pytest.fixture(scope="module")
def docker_host(paired_base: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Start a dockerd whose containers have published ports, by a bridge of its own and no rule of a firewall."""
    need("dockerd", "docker", "ip")
    bridge = f"vm{os.getpid()}"
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "addr", "add", "10.61.7.1/24", "dev", bridge], check=True)
        with started(tmp_path_factory.mktemp("bridged"), bridge=bridge) as engine:
            yield make_host(
                engine,
                tmp_path_factory.mktemp("docker-host"),
                paired_base,
                lambda archive: ("load", "-q", "-i", archive),
                BASE,
            )
    finally:
        subprocess.run(["ip", "link", "del", bridge], check=True)


@pytest.fixture
def docker(docker_host: Host) -> Iterator[Host]:
    yield docker_host
    docker_host.remove()


def test_a_start_tells_what_it_is_at_and_keeps_what_has_served(docker: Host) -> None:
    said = docker.run("--port", docker.port + 1, fail="slow")
    assert (
        f", http://127.0.0.1:{docker.port + 1}\npatching: its code ran: patched 7\n" in said.stdout
    )
    phases = [line.split(" s  ")[1] for line in said.stderr.splitlines() if " s  " in line]
    loads = [one for one in phases if one.startswith("loads ")]  # it may be looked at once more
    assert loads == ["loads weights, 1 of 2 files", "loads weights, 2 of 2 files"]
    assert docker.state(".HostConfig.RestartPolicy.Name") == "unless-stopped"
    (listed,) = docker.tool.json("ps")["containers"]
    assert listed["evidence"]["ok"]
    assert listed["ports"] == [f"127.0.0.1:{docker.port + 1}"]
    taken = docker.run(code=2)
    assert f"docker already has a container {NAME} (running); nothing was started" in taken.stderr
    assert f", http://127.0.0.1:{docker.port}\n" in docker.follow(taken)
    docker.engine("rm", "--force", NAME)
    docker.engine("create", "--name", NAME, BASE)
    other = docker.run(code=2)
    assert "--name small-2" in other.stderr
    assert "small-2: docker " in docker.follow(other)
    docker.engine("rm", "--force", "small-2")


@pytest.mark.parametrize(
    ("fail", "cause", "leads_to"),
    [
        (
            "weights",
            "KeyError: 'layers.0.qkv_proj.weight_scale_inv', which became ValueError: the model has no place",
            "pairings\n",
        ),
        ("length", "ValueError: 9.0 GiB KV cache is needed for one request", "its code ran"),
        (
            "killed",
            "a process of the engine was killed, by a person or by the kernel",
            "its code ran",
        ),
    ],
)
def test_an_engine_that_fails_is_told_by_its_first_exception(
    docker: Host, fail: str, cause: str, leads_to: str
) -> None:
    failed = docker.run(fail=fail, code=1)
    assert f"error: small ended before it served: {cause}" in failed.stderr
    assert docker.state(".State.Status") == "exited"
    assert leads_to in docker.follow(failed)


def test_a_limit_of_memory_is_told(docker: Host, tmp_path: Path) -> None:
    """The limit is that of a machine on which all containers have one."""
    real = shutil.which("docker")
    limited = (
        f'#!/bin/sh\n[ "$1" = run ] && shift && set -- run --memory 64m "$@"\nexec {real} "$@"\n'
    )
    (tmp_path / "docker").write_text(limited)
    (tmp_path / "docker").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    failed = docker.run(fail="memory", code=1, PATH=path)
    assert (
        "out of memory: a process was killed at the container's memory limit, 64 MiB"
        in failed.stderr
    )
    assert "--gpu-memory-utilization 0.8\n" in failed.stderr
    assert "its code ran" in docker.follow(failed)


def test_a_port_that_is_taken_is_told_with_one_that_is_free(docker: Host) -> None:
    with socket.create_server(("127.0.0.1", docker.port)):
        taken = docker.run(code=1)
        assert "the container was removed" in taken.stderr
        assert "its code ran" in docker.follow(taken)


def test_the_health_check_asks_the_port_that_vllm_is_given(docker: Host) -> None:
    said = docker.run("--host", "0.0.0.0", "--", "--port", docker.port + 7)  # noqa: S104
    assert f"http://127.0.0.1:{docker.port + 7}\n" in said.stdout
    assert f"{docker.port + 7}, timeout" in docker.state("json .Config.Healthcheck.Test")
    assert docker.state(".Config.Healthcheck.StartPeriod") == "30m0s"
    assert docker.state("json .HostConfig.PortBindings").count(f'"{docker.port + 7}') == 2


def test_who_fails_again_and_again_stops_in_the_end(docker: Host) -> None:
    docker.run(fail="weights", wait=False)
    for _ in range(300):
        if docker.state(".State.Status") == "exited":
            break
        time.sleep(0.1)
    listed = docker.tool("ps")
    assert "small  docker  exited (1), 3 restarts  127.0.0.1:" in listed.stdout
    assert "\nsmall: KeyError: 'layers.0" in listed.stdout
    assert "pairings\n" in docker.follow(listed)


def test_an_engine_that_is_killed_after_it_served_is_told(docker: Host) -> None:
    docker.run()
    processes = docker.engine("top", NAME, "-o", "pid").split()
    os.kill(int(processes[-1]), 9)
    listed = docker.tool("ps")
    for _ in range(100):
        listed = docker.tool("ps")
        if "ran" in listed.stdout and "running, 1 restart " in listed.stdout:
            break
        time.sleep(0.1)
    assert (
        "small: a process of the engine was killed, by a person or by the kernel" in listed.stdout
    )
    assert "its code ran" in docker.follow(listed)


def test_what_is_refused_starts_nothing(docker: Host, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links/config.json").symlink_to("../../blobs/0123")
    for name in ("links", "empty"):
        (tmp_path / name).mkdir(exist_ok=True)
        assert f"{tmp_path}/{name}" in docker.run("--model-folder", tmp_path / name, code=3).stderr
    bad = docker.run("--", "--max-num-seqs", "many", code=3)
    assert "many" in docker.follow(bad, code=1)
    inside = docker.run("--", "--host", "127.0.0.1", code=2)
    assert "is reachable only inside the container" in inside.stderr
    docker.engine("rmi", "--force", docker.tag)
    gone = docker.run(code=2)
    assert f"image {docker.tag} not found" in gone.stderr
    docker.follow(gone)
    assert "its code ran" in docker.run().stdout


def test_podman_leaves_what_failed_stopped_and_is_listed_beside_docker(
    buildah: Engine, docker: Host, paired_base: Image, tmp_path: Path
) -> None:
    need("podman", "runc")
    settings = tmp_path / "containers.conf"  # no network of the machine's is touched
    settings.write_text(
        '[containers]\nnetns = "host"\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
    )
    nowhere = {"DOCKER_HOST": "unix:///nowhere"}
    environ = {**buildah.environ, "CONTAINERS_CONF": str(settings), **nowhere}
    made = make_host(
        Engine("podman", environ, settings),
        tmp_path,
        paired_base,
        lambda archive: ("pull", "-q", f"oci-archive:{archive}"),
        f"podman:{BASE}",
    )
    try:
        failed = made.run(fail="weights", code=1)
        assert "ended before it served: KeyError: 'layers.0" in failed.stderr
        time.sleep(1)
        assert made.state(".State.Status") in {"exited", "stopped"}
        assert "pairings\n" in made.follow(failed)
        said = made.run("--replace")
        assert "patching: its code ran" in said.stdout
        assert "which stays on-failure:3" in said.stderr
        alone = made.tool("ps")
        assert "docker ps: Cannot connect" in alone.stderr
        docker.run()
        both = Tool(made.tool.library, {**environ, **docker.engine.environ})("ps")
        rows = [line.split()[:2] for line in both.stdout.splitlines()[1:3]]
        assert rows == [["small", "docker"], ["small", "podman"]]
    finally:
        made.remove()


def test_up_does_what_is_left_to_do(docker: Host) -> None:
    (docker.model / "fail").write_text("")
    words = ["up", NAME, "--engine", "docker", "--gpus", "none", "--model-folder", docker.model]

    def steps(*more: object) -> tuple[list[str], CompletedProcess[str]]:
        said = docker.tool(*words, *more)
        rows = [line.split() for line in said.stderr.splitlines()]
        planned = [row for row in rows if row[:1] in (["lock"], ["build"], ["run"])]
        return ["to do" if row[1:3] == ["to", "do"] else row[1] for row in planned], said

    docker.tool.lock().unlink()
    first, said = steps()
    assert first == ["to do"] * 3
    assert "patching: its code ran" in said.stdout
    running = docker.state(".Id")
    second, said = steps()
    assert second == ["done"] * 3
    assert "patching: its code ran" in said.stdout
    assert docker.state(".Id") == running
    pairing = docker.tool.library / f"pairings/{NAME}.toml"
    text = pairing.read_text()
    pairing.write_text(text.replace(f"--port {docker.port}", f"--port {docker.port + 2}"))
    try:
        assert steps()[0] == ["to do"] * 3
        assert f"127.0.0.1:{docker.port + 2}" in docker.tool("ps").stdout
        assert docker.state(".Id") != running
        assert steps("--port", docker.port + 3)[0] == ["done", "done", "to do"]
    finally:
        pairing.write_text(text)
        docker.tool("lock", NAME)
