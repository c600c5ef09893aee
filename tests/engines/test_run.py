"""`run`, `ps` and `evidence` with a real dockerd and the image of a pairing's lock."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from making_images import Image
from paired import BASE, NAME, Tool, library

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from real_engines import Engine

FORM = "INFO 11-23 10:00:00"
READY = f"(APIServer pid=1) {FORM} [api_server.py:617] Starting vLLM server on :8000"
SERVE = f"""
import sys, time
print({READY!r}, "\\n(Worker pid=9) {FORM} [a.py:1] patched 7", sys.argv[1:], sep="", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tool(
    dockerd: Engine, paired_archive: Path, python_layer: bytes, tmp_path: Path
) -> Iterator[Tool]:
    """Lock the pairing, and give docker an image that says it is of that lock, and serves nothing."""
    dockerd("load", "-i", paired_archive)
    found = Tool(library(tmp_path / "library", BASE), dockerd.environ)
    manifest = found.library / "patches/patching/mod.toml"
    text = manifest.read_text()
    manifest.write_text(
        text.replace("[[variant]]", "[evidence]\nlog = 'patched \\d+'\n[[variant]]")
    )
    found("lock", NAME)
    digest = hashlib.sha256(found.lock().read_bytes()).hexdigest()
    settings = {
        "Env": ["PATH=/usr/local/bin"],
        "Entrypoint": ["python3", "-c", SERVE],
        "Labels": {"vllm-mods.lock": f"sha256:{digest}", "vllm-mods.mods": "patching@1.0.0"},
        "StopSignal": "SIGKILL",
    }
    tag = f"small:0.19.1-{digest[:12]}"
    Image([python_layer], settings, tag).archive(tmp_path / "small.tar")
    dockerd("load", "-i", tmp_path / "small.tar")
    yield found
    assert dockerd("ps", "-aq") == "", "a container was left behind"
    dockerd("rmi", "-f", tag)


def test_a_pairing_is_started_and_told_from_others(tool: Tool, dockerd: Engine) -> None:
    other = dockerd("create", "--network=none", "--name", "other", BASE)
    said = tool("run", NAME, "--engine", "docker", "--gpus", "none", "--", "--max-model-len", "9 9")
    assert said.stdout.startswith("small: docker ")
    (there,) = json.loads(dockerd("container", "inspect", "small"))
    policy = {"Name": "on-failure", "MaximumRetryCount": 3}
    assert there["HostConfig"]["RestartPolicy"] == policy
    assert there["HostConfig"]["ShmSize"] == 16 << 30
    assert list(there["HostConfig"]["PortBindings"]) == ["8000/tcp"]
    listed = dockerd("ps", "--filter", "label=vllm-mods.run")
    assert "small" in listed
    assert "other" not in listed
    while "patched" not in (log := dockerd("logs", "small")):
        pass
    assert log.strip().endswith("patched 7['--max-model-len', '9 9']")
    seen = tool("evidence", "--container", "small")
    assert seen.stdout == "patching: its code ran: patched 7\n"
    dockerd("stop", "small")
    dockerd("rm", "small", other)


def test_what_does_not_start_leaves_no_container(tool: Tool, dockerd: Engine) -> None:
    run = ("run", NAME, "--engine", "docker")
    failed = tool(*run, code=1).stderr  # the tests' docker has no driver for GPUs
    assert "could not select device driver" in failed
    assert (
        "the container was removed\n\nhint: vllm-mods run small --engine docker --gpus none"
        in failed
    )
    assert dockerd("ps", "-aq") == ""
    tool(*run, "--gpus", "none")
    taken = tool(*run, "--gpus", "none", code=2).stderr
    assert taken.startswith("note: ")
    assert (
        "docker already has a container small (running); nothing was started\n\nhint: vllm-mods run"
        in taken
    )
    assert "Up" in dockerd("ps", "--filter", "name=small", "--format", "{{.Status}}")
    dockerd("rm", "--force", "small")
