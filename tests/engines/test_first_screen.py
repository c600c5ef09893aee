"""Who types what ``vllm-mods`` says comes next, from the bare command on, has a pairing that serves."""

from __future__ import annotations

import subprocess
from pathlib import Path

from making_images import File, Image, layer
from paired import BASE, NAME, Tool, library
from real_engines import Engine

SERVE = b"""#!/usr/local/bin/python3
import sys, time
print("serving", *sys.argv[1:], flush=True)
time.sleep(600)
"""


def hint(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the words behind ``vllm-mods`` of the hint that a command ends with."""
    return done.stderr.rpartition("hint: vllm-mods ")[2].partition("#")[0].split()


def test_following_the_hints_ends_with_a_pairing_that_serves(
    dockerd: Engine, paired_base: Image, tmp_path: Path
) -> None:
    program = layer({"usr/local/bin/vllm": File(SERVE, 0o755)})
    base = Image([*paired_base.layers, program], {**paired_base.settings, "StopSignal": "SIGKILL"})
    base.name = BASE
    dockerd("load", "-i", base.archive(tmp_path / "base.tar"))
    tool = Tool(library(tmp_path / "library", BASE), dockerd.environ)
    said = tool()
    assert f"  docker:{BASE}\n" in said.stdout
    steps = []
    while (words := hint(said))[0] != "logs":
        steps.append(words)
        more = ("--gpus", "none", "--engine", "docker") if words[0] == "run" else ()
        said = tool(*words, *more)
    assert steps == [["lock", NAME], ["build", NAME], ["run", NAME]]
    while "serving" not in (log := tool(*words).stdout):
        pass
    assert log.startswith("serving serve org/small --chat-template /")
    now = tool()
    assert f"    pairing {NAME}, for org/small\n    runs as {NAME}\n" in now.stdout
    assert hint(now) == ["logs", NAME]
    tool("stop", NAME)
    assert hint(tool()) == ["run", NAME]
    dockerd("rmi", "-f", *dockerd("images", "-q", "small").split(), BASE)
