"""docker and podman, by their own commands: what a container is, what it said, and whether it serves."""

import http.client
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import engine_command
from vllm_mods.images.engine_command import PROGRAMS
from vllm_mods.running.service import Service

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\Z", re.ASCII)
_POLL_SECONDS = 2.0
_HEALTH_SECONDS = 5.0


class EngineContainer(NamedTuple):
    """A container of an engine, running or not; ``restarts`` is how often the engine started it again, ``started`` when last."""

    program: str
    name: str
    labels: Mapping[str, str]
    running: bool
    restarts: int
    started: str


def engines_here() -> tuple[str, ...]:
    """Return the engines that are here."""
    return tuple(one for one in PROGRAMS if shutil.which(one))


def installed(wanted: str | None = None) -> tuple[str, ...]:
    """Return the engines that are here, or the one that is wanted. Raises ``UsageError`` if there is none."""
    usable = tuple(one for one in engines_here() if wanted in {None, one})
    if not usable:
        raise UsageError(
            f"{wanted or ' and '.join(PROGRAMS)}: not installed here", hint="apt install podman"
        )
    return usable


def log_command(program: str, name: str) -> str:
    """Return the line that shows what a container says."""
    return f"{program} logs --follow {name}"


def labels(program: str, image: str) -> Mapping[str, str] | None:
    """Return the labels of an image, None if the engine has none of that name."""
    done = engine_command.run(program, "image", "inspect", "--", image)
    if done.code:
        return None
    (raw, *_) = json.loads(done.out)
    stated: Mapping[str, str] = (raw.get("Config") or {}).get("Labels") or {}
    return stated


def container(name: str, wanted: str | None = None) -> EngineContainer:
    """Find a container by its name. Raises ``UsageError`` if no engine here has it."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} is not a name for a container", hint="docker ps --all")
    programs = installed(wanted)
    for program in programs:
        done = engine_command.run(program, "container", "inspect", name)
        if not done.code:
            (raw,) = json.loads(done.out)
            return EngineContainer(
                program,
                name,
                raw["Config"].get("Labels") or {},
                bool(raw["State"]["Running"]),
                int(raw.get("RestartCount") or 0),
                raw["State"]["StartedAt"],
            )
    raise UsageError(
        f"{' and '.join(programs)}: no container {name}", hint=f"{programs[0]} ps --all"
    )


def log(container: EngineContainer, *, since: str | None = None) -> bytes:
    """Return what a container has said, all of it or ``since`` a time: no more than one byte past ``limits.LOG``."""
    later = () if since is None else ("--since", since)
    command = [container.program, "logs", *later, container.name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None  # noqa: S101  (it is a pipe)
        end = threading.Timer(limits.TOOL_SECONDS, process.kill)
        end.start()
        data = process.stdout.read(limits.LOG + 1)
        end.cancel()
        process.kill()
    return data


def start(line: Sequence[str], name: str) -> str:
    """Run ``PROGRAM run --detach …`` and return the container's ID; one that does not start is removed again.

    Raises ``UsageError`` where a container has the name, ``TreeError`` with the engine's words.
    """
    program = line[0]
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
        id_file = Path(folder, "id")
        done = engine_command.run(*line[:3], "--cidfile", str(id_file), *line[3:])
        identity = id_file.read_text().strip() if id_file.exists() else ""
    if not done.code:
        return done.out
    if identity:
        engine_command.run(program, "rm", "--force", "--volumes", identity)
    elif not engine_command.run(program, "container", "inspect", name).code:
        raise UsageError(
            f"{program} already has a container {name}; nothing was started",
            hint=f"{program} stop {name} && {program} rm {name}; or --name ANOTHER",
        )
    words = done.errors.partition("\n\nRun '")[0]
    no_gpu = any(word in words.lower() for word in ("gpu", "nvidia"))
    raise TreeError(
        f"{program} run: {words}; the container was removed",
        hint="--gpus none, if this machine has no GPU" if no_gpu else f"{program} info",
    )


def wait(planned: Service, program: str) -> None:
    """Wait until it serves. Raises ``TreeError`` for a container that ends, or takes too long."""
    end = time.monotonic() + limits.START_SECONDS
    while not _serves(planned.port):
        state = container(planned.name, program)
        if not state.running or state.restarts:
            last = log(state)[-2000:].decode("utf-8", "replace").strip()
            why = f"ended before it served; the end of its log:\n{last}"
        elif time.monotonic() > end:
            why = f"did not serve within {limits.START_SECONDS}"
        else:
            time.sleep(_POLL_SECONDS)
            continue
        raise TreeError(f"{planned.name} {why}", hint=log_command(program, planned.name))


def _serves(port: int) -> bool:
    connection = http.client.HTTPConnection("localhost", port, timeout=_HEALTH_SECONDS)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
