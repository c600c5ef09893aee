"""The one way to run docker, podman and nvidia-smi: bounded in time, and what they say as an error of ours."""

import shutil
import subprocess
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, reading

DOCKER, PODMAN = "docker", "podman"
PROGRAMS = (DOCKER, PODMAN)
"""The engines, by the program that each is commanded with."""
STORES = {"docker": DOCKER, "containerd": DOCKER, "podman": PODMAN}
"""The program that opens an image store, by the ``where`` of the images in it (``images/model.py``)."""
_ABSENT = ("no such", "not known", "not found", "not find")


class EngineOutcome(NamedTuple):
    """How a command of an engine ended: its exit code, what it printed, and its errors."""

    code: int
    out: str
    errors: str

    @property
    def is_absent(self) -> bool:
        """Whether it failed because the engine has nothing of that name."""
        return bool(self.code) and any(word in self.errors.lower() for word in _ABSENT)


def run(
    program: str, *arguments: str, given: bytes = b"", within: limits.Limit | None = None
) -> EngineOutcome:
    """Run a command with ``given`` on its standard input. Raises ``TreeError`` if it cannot run, or does not end in time."""
    within = within or limits.TOOL_SECONDS
    command = [program, *arguments]
    try:
        with reading(program, f"{program} cannot be run", hint=f"apt install {program}"):
            done = subprocess.run(
                command, input=given, capture_output=True, check=False, timeout=float(within)
            )
    except subprocess.TimeoutExpired as error:
        why = f"{program} {arguments[0]} did not answer within {within}"
        raise TreeError(why, hint=f"{program} info") from error
    out, errors = (text.decode("utf-8", "replace").strip() for text in (done.stdout, done.stderr))
    return EngineOutcome(done.returncode, out, errors)


def call(program: str, *arguments: str) -> str:
    """Return what a command prints. Raises ``TreeError`` with the engine's own words if it fails."""
    done = run(program, *arguments)
    if done.code:
        raise failure(program, arguments[0], done)
    return done.out


def gpus(fields: str, only: str | None = None) -> list[str]:
    """Return what nvidia-smi says of each GPU here, or of ``only`` those named, a line for each.

    Nothing without nvidia-smi, or of a driver that hangs.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        some = () if only is None else (f"--id={only}",)
        done = run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", *some)
    except TreeError:
        return []
    return [] if done.code else done.out.splitlines()


def failure(program: str, what: str, done: EngineOutcome) -> TreeError:
    """Return the error of an engine's command that failed, in the engine's words."""
    last = done.errors or f"exit code {done.code}"
    hint = f"{program} info"
    if "unshare" in last or "rootless" in last:
        hint = "podman unshare vllm-mods …  # mounts a rootless store"
    return TreeError(f"{program} {what}: {last}", hint=hint)
