"""docker and podman, by their own commands: what a container is, and what it said."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError

PROGRAMS = ("docker", "podman")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\Z", re.ASCII)


class EngineContainer(NamedTuple):
    """A container of an engine, running or not; ``image`` is the ID of its image."""

    program: str
    name: str
    image: str
    labels: Mapping[str, str]
    running: bool


def installed(wanted: str | None = None) -> tuple[str, ...]:
    """Return the engines that are here, or the one that is wanted. Raises ``UsageError`` if there is none."""
    found = tuple(one for one in ((wanted,) if wanted else PROGRAMS) if shutil.which(one))
    if not found:
        raise UsageError(
            f"{wanted or ' and '.join(PROGRAMS)}: not installed here", hint="apt install podman"
        )
    return found


def container(name: str, wanted: str | None = None) -> EngineContainer:
    """Find a container by its name. Raises ``UsageError`` if no engine here has it."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} is no name of a container", hint="vllm-mods ps")
    programs = installed(wanted)
    for program in programs:
        done = _run(program, "container", "inspect", name)
        if not done.returncode:
            (raw,) = json.loads(done.stdout)
            return EngineContainer(
                program,
                name,
                raw["Image"],
                raw["Config"].get("Labels") or {},
                bool(raw["State"]["Running"]),
            )
    raise UsageError(f"{' and '.join(programs)}: no container {name}", hint="vllm-mods ps")


def log(found: EngineContainer) -> bytes:
    """Return what a container has said, no more of it than one byte past ``limits.LOG``."""
    command = [found.program, "logs", found.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None  # noqa: S101  (it is a pipe)
        end = threading.Timer(limits.TOOL_SECONDS, process.kill)
        end.start()
        data = process.stdout.read(limits.LOG + 1)
        end.cancel()
        process.kill()
    return data


def call(program: str, *arguments: str) -> str:
    """Run a command of an engine. Raises ``TreeError`` with its own words if it fails."""
    done = _run(program, *arguments)
    if done.returncode:
        raise TreeError(f"{program} {arguments[0]}: {done.stderr.strip()}", hint=f"{program} info")
    return done.stdout


def shown(program: str, arguments: Sequence[str]) -> int:
    """Run a command of an engine that answers for itself; return its exit status."""
    return subprocess.run([program, *arguments], check=False).returncode


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limits.TOOL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise TreeError(
            f"{program} {arguments[0]} has not answered within {limits.TOOL_SECONDS}",
            hint=f"{program} info",
        ) from error
