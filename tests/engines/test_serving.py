"""An image serves its pairing: a stand-in for `vllm` says what it was started with."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import serve_tree
from making_images import File, Image, Link, layer
from mod_making import diff_of
from paired import NAME as PAIRING, Tool, library
from real_engines import SITE, libraries, need

if TYPE_CHECKING:
    from making_images import Thing
    from real_engines import Engine

BASE = "localhost/serving:latest"
VLLM = b"""#!/usr/local/bin/python3
import json, os, sys
print(json.dumps({"argv": sys.argv, "env": dict(os.environ)}))
"""
COMMAND = """command = '''
EXTRA='from the command' vllm serve {model} \\
  --revision {revision} --port 9001 \\
  --speculative-config '{{"method": "mtp", "n": [1, 2]}}' \\
  --chat-template small.jinja
'''
revision = "abc"
[env]
GREETING = "it's $HOME"
"""


@pytest.fixture(scope="session")
def serving_archive(paired_base: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base that has a `vllm`, and a command and environment of its own."""
    settings = {
        **paired_base.settings,
        "Env": [*paired_base.settings["Env"], "GREETING=of the base", "BELOW=1"],
        "Entrypoint": ["/usr/local/bin/python3"],
        "Cmd": ["--version"],
    }
    layers = [*paired_base.layers, layer({"usr/local/bin/vllm": File(VLLM, 0o755)})]
    made = Image(layers, settings, BASE)
    return made.archive(tmp_path_factory.mktemp("archive") / "serving.tar")


@pytest.fixture
def mods(tmp_path: Path) -> Path:
    made = library(tmp_path / "library", BASE)
    place = made / f"pairings/{PAIRING}.toml"
    text = place.read_text()
    place.write_text(text[: text.index("command =")] + COMMAND)
    return made


def check(said: dict[str, Any]) -> None:
    """What the stand-in was started with is what the pairing says."""
    assert said["argv"] == [
        "/usr/local/bin/vllm", "serve", "org/small", "--revision", "abc", "--port", "9001",
        "--speculative-config", '{"method": "mtp", "n": [1, 2]}',
        "--chat-template", "/root/space/small.jinja", "--max-model-len", "a b",
    ]  # fmt: skip
    wanted = {"GREETING": "it's $HOME", "EXTRA": "from the command", "BELOW": "1"}
    assert said["env"].items() >= wanted.items()


def test_docker_runs_the_pairing(dockerd: Engine, serving_archive: Path, mods: Path) -> None:
    dockerd("load", "-q", "-i", serving_archive)
    tool = Tool(mods, dockerd.environ)
    tool("lock", PAIRING)
    tag = tool.json("build", PAIRING)["tag"]
    try:
        check(json.loads(dockerd("run", "--rm", "--network=none", tag, "--max-model-len", "a b")))
        config = json.loads(dockerd("inspect", "-f", "{{json .Config}}", tag))
        assert config["ExposedPorts"] == {"9001/tcp": {}}
        assert config["StopSignal"] == "SIGINT"
        assert config["Healthcheck"]["Test"][:3] == ["CMD", "python3", "-c"]
        assert config["Labels"]["vllm-mods.revision"] == "abc"
        # And what serves is well, or not.
        health = config["Healthcheck"]["Test"][1:]
        ask = ["run", "--rm", "--network=none", "--entrypoint", health[0], tag, *health[1:]]
        assert "ConnectionRefusedError" in _said(dockerd, *ask)
    finally:
        for name in (tag, BASE):
            dockerd("rmi", "-f", name, check=False)


RAY = """#!/usr/local/bin/python3
import os, socket, sys, time
given = dict(one.lstrip("-").split("=") for one in sys.argv[2:] if "=" in one)
own = given["node-ip-address"]
if "--head" in sys.argv:
    door = socket.create_server((own, int(given["port"])))
    if os.fork():
        sys.exit()
    joined, (other, _) = door.accept()
    open("/tmp/joined", "w").write(other)
    joined.sendall(own.encode())
else:
    host, _, port = given["address"].rpartition(":")
    talk = socket.create_connection((host, int(port)), source_address=(own, 0))
    print(own, "joined", talk.recv(99).decode(), flush=True)
time.sleep(600)
"""
RAYS_VLLM = """#!/usr/local/bin/python3
import os, sys, time
while not os.path.exists("/tmp/joined"):
    time.sleep(0.1)
print(*sys.argv[1:], os.environ["GREETING"], "with", open("/tmp/joined").read(), flush=True)
time.sleep(600)
"""


def test_head_and_worker_start_from_the_compose_file(
    dockerd: Engine, paired_base: Image, tmp_path: Path
) -> None:
    """Two nodes on one machine, by addresses of the loopback; each is told its own variables and no others."""
    need("docker-compose", "bash")
    things: dict[str, Thing] = {
        f"usr/bin/{name}": File(Path("/bin", name).read_bytes(), 0o755)
        for name in ("bash", "sleep")
    }
    things |= {
        f"usr/{one.lstrip('/').removeprefix('usr/')}": File(Path(one).read_bytes(), 0o755)
        for one in libraries(["/bin/bash", "/bin/sleep"])
    }
    things |= {"bin": Link("usr/bin"), "usr/local/bin/ray": File(RAY.encode(), 0o755)}
    things |= {"usr/local/bin/vllm": File(RAYS_VLLM.encode(), 0o755)}
    base = Image(
        [*paired_base.layers, layer(things)], paired_base.settings, "localhost/rays:latest"
    )
    dockerd("load", "-q", "-i", base.archive(tmp_path / "base.tar"))
    made = library(tmp_path / "library", base.name)
    place = made / f"pairings/{PAIRING}.toml"
    text = place.read_text()
    command = """command = "vllm serve {model} --distributed-executor-backend ray '$HOME'"\n"""
    place.write_text(
        f"{text[: text.index('command =')]}topology = 'cluster'\n{command}[env]\nGREETING = '50% $x'\n"
    )
    tool = Tool(made, dockerd.environ)
    tool("lock", PAIRING)
    tag = tool.json("build", PAIRING)["tag"]
    file = tmp_path / "compose.yaml"
    tool(
        "export",
        PAIRING,
        "--format",
        "compose",
        "--gpus",
        "none",
        "--model-cache",
        tmp_path,
        "--output",
        file,
    )
    head, worker = {"VLLM_HOST_IP": "127.61.7.1"}, {"VLLM_HOST_IP": "127.61.7.2"}

    def compose(part: str, *words: str, **more: str) -> None:
        call = ["docker-compose", "-f", str(file), "--profile", part, *words]
        subprocess.run(call, env={**os.environ, **dockerd.environ, **more}, check=True, timeout=120)

    try:
        compose("head", "up", "-d", **head)
        compose("worker", "up", "-d", **worker, HEAD_IP="127.61.7.1")
        wanted = {
            "small-head": "serve org/small --distributed-executor-backend ray $HOME 50% $x with 127.61.7.2",
            "small-worker": "127.61.7.2 joined 127.61.7.1",
        }
        said: dict[str, str] = {}
        for _ in range(100):
            said = {name: dockerd("logs", name) for name in wanted}
            if all(said.values()):
                break
            time.sleep(0.2)
        assert said == wanted
    finally:
        for part in ("worker", "head"):
            compose(part, "rm", "-sf", **head)
        dockerd("rmi", "-f", tag, base.name, check=False)


def test_run_refuses_what_the_vllm_in_the_image_would_not_take(
    dockerd: Engine, paired_base: Image, tmp_path: Path
) -> None:
    """The flag that a mod adds is taken, since the mod is in the image."""
    tree = {
        f"{SITE}/{path}": data for path, data in serve_tree.FILES.items() if "_version" not in path
    }
    layers = [*paired_base.layers, layer({"usr/local/bin/vllm": File(VLLM, 0o755), **tree})]
    base = Image(layers, {**paired_base.settings, "Entrypoint": None}, "localhost/flags:latest")
    dockerd("load", "-q", "-i", base.archive(tmp_path / "base.tar"))
    made = library(tmp_path / "library", base.name)
    place, before = "vllm/engine/arg_utils.py", serve_tree.ARGS
    after = before.replace(
        '"--quiet"', '"--of-a-mod", type=str)\n        parser.add_argument("--quiet"'
    )
    (made / "patches/patching/x.patch").write_bytes(diff_of(place, before, after))
    tool = Tool(made, dockerd.environ)
    tool("lock", PAIRING)
    tag = tool.json("build", PAIRING)["tag"]
    call = ("run", PAIRING, "--gpus", "none", "--engine", "docker", "--")
    try:
        refused = tool(*call, "--of-a-mood", "x", code=3).stderr
        assert (
            "would reject the command of pairing small\n  --of-a-mood: vLLM 0.19.1 has no"
            in refused
        )
        assert "did you mean --of-a-mod?" in refused
        assert f"--of-a-mood x' --target image:docker:{tag}" in refused
        assert dockerd("ps", "-aq") == ""
        assert "serve command was not checked" not in tool(*call, "--of-a-mod", "x").stderr
        dockerd("rm", "-f", PAIRING)
    finally:
        dockerd("rmi", "-f", tag, base.name, check=False)


def test_podman_runs_the_pairing(buildah: Engine, serving_archive: Path, mods: Path) -> None:
    need("podman", "runc")
    buildah("pull", "-q", f"oci-archive:{serving_archive}")
    tool = Tool(mods, {**buildah.environ, "DOCKER_HOST": "unix:///nowhere"})
    tool("lock", PAIRING, "--base", f"podman:{BASE}")
    tag = tool.json("build", PAIRING, "--base", f"podman:{BASE}")["tag"]
    podman = buildah._replace(tool="podman")
    said = podman(
        "--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file", "run", "--rm",
        "--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", f"localhost/{tag}", "--max-model-len", "a b",
    )  # fmt: skip
    check(json.loads(said))
    config = json.loads(podman("image", "inspect", "-f", "{{json .Config}}", f"localhost/{tag}"))
    assert config["ExposedPorts"] == {"9001/tcp": {}}
    assert config["StopSignal"] == "SIGINT"
    tool("image", "verify", f"podman:localhost/{tag}", "--lock", tool.lock())


TAMPERED = {
    'ENTRYPOINT ["/evil"]': 'the setting Entrypoint is ["/evil"]',
    "ENV PYTHONPATH=/evil": "the environment's PYTHONPATH is /evil, but the lock says not there",
    "LABEL vllm-mods.model=org/evil": "the label vllm-mods.model is org/evil",
    "HEALTHCHECK NONE": "the setting Healthcheck is {",
    "USER nobody": "the setting User is nobody",
    f"COPY evil.py /{SITE}/sitecustomize.py": "layer 6 of 6 is not in the lock",
    f"COPY evil.py /{SITE}/vllm/a.py": "vllm/a.py: ",
}


def test_docker_verifies_what_was_built_and_nothing_else(
    dockerd: Engine, serving_archive: Path, mods: Path, tmp_path: Path
) -> None:
    dockerd("load", "-q", "-i", serving_archive)
    tool = Tool(mods, dockerd.environ)
    tool("lock", PAIRING)
    tag = tool.json("build", PAIRING)["tag"]
    try:
        tool("image", "verify", tag)
        tool("image", "verify", tag, "--lock", tool.lock())
        (tmp_path / "context").mkdir()
        (tmp_path / "context/evil.py").write_text("EVIL = 1\n")
        for line, said in TAMPERED.items():
            (tmp_path / "context/Dockerfile").write_text(f"FROM {tag}\n{line}\n")
            dockerd("build", "-q", "-t", "small:evil", "--network=none", tmp_path / "context")
            assert said in tool("image", "verify", "small:evil", code=1).stdout
    finally:
        for name in ("small:evil", tag, BASE):
            dockerd("rmi", "-f", name, check=False)


def _said(engine: Engine, *arguments: str) -> str:
    command = [engine.tool, *arguments]
    environ = {**os.environ, **engine.environ}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False).stderr
