"""`run --mount` and `run --record` in real engines: mods in a container whose image has none, and what their code notes."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from making_images import File, Image, layer
from mod_making import diff_of
from paired import NAME, STALE, Tool, library
from real_engines import SITE, Engine, need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

    from making_images import Thing

BASE = "localhost/plain:latest"
LOADER = "def load():\n    return 1\n\n\ndef other():\n    return 1\n"
NEW = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+PART = 3\n"
GONE = "diff --git a/{0} b/{0}\ndeleted file mode 100644\n--- a/{0}\n+++ /dev/null\n@@ -1 +0,0 @@\n-B = 1\n"
PATCH = diff_of("vllm/loader.py", LOADER, LOADER.replace("return 1", "return 2"))
PATCH += NEW.format("vllm/new/part.py").encode() + NEW.format("vllm/new/E=1,N=2.json").encode()
SERVER = """#!/usr/local/bin/python3
import os, sys, time
from vllm import a, loader
try:
    from vllm.new.part import PART
except ImportError:
    PART = 0
print(f"INFO 11-23 10:00:00 [a.py:1] {a.A} {loader.load()} {PART} {os.getuid()} {os.environ.get('SET')} {sys.argv[1:]}", flush=True)
time.sleep(600)
"""
RECORDS = sys.version_info >= (3, 12)


class Host(NamedTuple):
    """An engine that has a plain vLLM, and a pairing that is locked on it and never built."""

    engine: Engine
    tool: Tool

    def run(self, *words: object, code: int = 0, **environ: str) -> CompletedProcess[str]:
        engine = ("--engine", self.engine.tool, "--gpus", "none")
        return self.tool("run", NAME, *engine, *words, code=code, **environ)

    def said(self, name: str = NAME) -> str:
        log = ""
        for _ in range(300):
            if "a.py" in (log := self.engine("logs", name)):
                break
            time.sleep(0.1)
        return log.partition("[a.py:1] ")[2]

    def remove(self) -> None:
        for name in (NAME, "second"):
            self.engine("rm", "--force", name, check=False)
        assert self.engine("ps", "-aq") == "", "a container was left behind"


@pytest.fixture(params=["docker", "podman"])
def host(request: pytest.FixtureRequest, paired_base: Image, tmp_path: Path) -> Iterator[Host]:
    environ, spec = {}, BASE
    if request.param == "docker":
        engine = request.getfixturevalue("dockerd")
        arguments: tuple[str, ...] = ("load", "-q", "-i")
    else:
        need("podman", "runc")
        stored = request.getfixturevalue("buildah")
        settings = tmp_path / "containers.conf"
        settings.write_text(
            '[containers]\nnetns = "host"\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\n'
        )
        environ = {**stored.environ, "CONTAINERS_CONF": str(settings)}
        engine = Engine("podman", {**environ, "DOCKER_HOST": "unix:///nowhere"}, settings)
        arguments, spec = ("pull", "-q"), f"podman:{BASE}"
    things: dict[str, Thing] = {
        "usr/local/bin/vllm": File(SERVER.encode(), 0o755),
        f"{SITE}/vllm/loader.py": LOADER.encode(),
    }
    variables = {"Env": [*paired_base.settings["Env"], "SET=base"], "User": "1234"}
    settings_ = {**paired_base.settings, **variables, "StopSignal": "SIGKILL"}
    archive = Image([*paired_base.layers, layer(things)], settings_, BASE).archive(
        tmp_path / "base.tar"
    )
    place = f"oci-archive:{archive}" if request.param == "podman" else archive
    engine(*arguments, place)
    found = Host(engine, Tool(library(tmp_path / "library", spec), engine.environ))
    mod = found.tool.library / "patches/patching"
    (mod / "x.patch").write_bytes((mod / "x.patch").read_bytes() + PATCH)
    found.tool("lock", NAME)
    yield found
    found.remove()


def test_mods_are_tried_without_an_image_of_them(host: Host, tmp_path: Path) -> None:
    lost = host.run(code=2)
    assert f"not found\n\nhint: vllm-mods build {NAME}\n" in lost.stderr
    images = set(host.engine("images", "-q").split())
    said = host.run("--mount", "--", "--max-num-seqs", "7")
    assert said.stdout.startswith(f"{NAME}: {host.engine.tool} ")
    first = host.said()
    assert first.startswith("2 2 3 1234 base ")
    assert first.strip().endswith("/small.jinja', '--max-num-seqs', '7']")
    assert set(host.engine("images", "-q").split()) == images
    (told,) = json.loads(host.engine("container", "inspect", NAME))
    bound = {one["Destination"]: one for one in told["Mounts"]}
    assert not [path for path in bound if "receipt" in path or "pairing.lock" in path]
    assert bound[f"/{SITE}/vllm/new/part.py"]["RW"] is False
    assert bound[f"/{SITE}/vllm/new/E=1,N=2.json"]["RW"] is False
    assert bound[f"/{SITE}/{STALE}"]["RW"] is False
    listed = host.tool("ps")
    assert "patching@1.0.0 writing@1.0.0 (mounted)" in re.sub(" +", " ", listed.stdout)
    (row,) = host.tool.json("ps", code=0)["containers"]
    assert (row["mounted"], row["mods"]) == (True, ["patching@1.0.0", "writing@1.0.0"])
    taken = host.run("--mount", code=2).stderr
    assert f"already has a container {NAME} (running); nothing was started" in taken
    (tmp_path / "file.env").write_text("# mine\nSET=file\n")
    host.run("--mount", "--name", "second", "--port", 8001, "--env-file", tmp_path / "file.env")
    assert host.said("second").startswith("2 2 3 1234 file ")


def test_what_cannot_be_mounted_is_refused(host: Host, tmp_path: Path) -> None:
    unbound = host.run("--mount", code=2, VLLM_MODS_CACHE=str(tmp_path / "a:b"))
    assert "cannot be mounted" in unbound.stderr
    assert "hint: VLLM_MODS_CACHE=DIR" in unbound.stderr
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/bound").symlink_to(tmp_path)
    linked = host.run("--mount", code=3, VLLM_MODS_CACHE=str(tmp_path / "a b")).stderr
    assert "was not created by vllm-mods" in linked
    (tmp_path / "a b/bound").unlink()
    host.run("--mount", VLLM_MODS_CACHE=str(tmp_path / "a b"))
    assert host.said().startswith("2 2 3 ")
    host.engine("rm", "--force", NAME)
    mod = host.tool.library / "patches/patching/x.patch"
    before = mod.read_bytes()
    mod.write_bytes(before + GONE.format("vllm/b.py").encode())
    moved = host.run("--mount", code=3).stderr
    assert "no longer matches" in moved
    host.tool("lock", NAME)
    gone = host.run("--mount", code=3).stderr
    assert f"a mod removes /{SITE}/vllm/b.py" in gone
    assert gone.endswith(f"hint: vllm-mods build {NAME}\n")


@pytest.mark.parametrize("mount", [True, False])
def test_a_container_records_what_its_processes_enter(
    host: Host, tmp_path: Path, *, mount: bool
) -> None:
    if not mount:
        host.tool("build", NAME)
    record = tmp_path / "my runs" / "run.jsonl"
    record.parent.mkdir()
    words = [*["--mount"] * mount, "--record", record]
    if not RECORDS:
        old = host.run(*words, code=3).stderr
        assert "records nothing, because it is older than 3.12" in old
        assert not record.exists()
        return
    host.run(*words)
    assert host.said().startswith("2 2 3 1234 base ")
    seen = host.tool("evidence", "--record", record).stdout
    assert [re.sub(r" \(\d+\)", "", line) for line in seen.splitlines()] == [
        "patching 1.0.0: its code ran",
        "  vllm/a.py: imported in MainProcess",
        "  vllm/loader.py: imported in MainProcess",
        "    load: entered in MainProcess",
        "    other: never entered",
        "  vllm/new/part.py: imported in MainProcess",
        "writing 1.0.0: it changes no Python here",
        "note: a function that torch.compile inlines is never recorded as entered",
    ]
    there = host.run(*words, "--name", "second", "--port", 8001, code=2).stderr
    assert "cannot be begun: File exists" in there
    other = tmp_path / "other.jsonl"
    assert "already has a container" in host.run("--record", other, *words[:-2], code=2).stderr
    assert not other.exists()
    host.engine("rm", "--force", NAME)
