"""docker and podman, by their own commands: what a container is, and what it said."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError, reading
from vllm_mods.images import engine_command
from vllm_mods.images.engine_command import PROGRAMS
from vllm_mods.running.service import PAIRING_LABEL

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*\Z", re.ASCII)


class EngineContainer(NamedTuple):
    """A container of an engine, running or not; ``restarts`` is how often the engine started it again, ``started`` when last.

    ``state`` is the engine's word, ``ports`` are those of the host, ``command`` is what runs in it, ``folders`` has
    the host's folder of each that is mounted. ``memory`` is its limit in bytes, 0 for none.
    """

    program: str
    name: str
    labels: Mapping[str, str]
    running: bool
    restarts: int
    started: str
    state: str = ""
    exit_code: int = 0
    out_of_memory: bool = False
    memory: int = 0
    ports: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    folders: Mapping[str, str] = {}


def engines_here() -> tuple[str, ...]:
    """Return the engines that are here."""
    return tuple(one for one in PROGRAMS if shutil.which(one))


def installed(wanted: str | None = None) -> tuple[str, ...]:
    """Return the engines that are here, or the one that is wanted. Raises ``UsageError`` if there is none."""
    usable = tuple(one for one in engines_here() if wanted in {None, one})
    if not usable:
        why = f"{wanted or ' and '.join(PROGRAMS)}: not installed here"
        raise UsageError(why, hint="apt install podman")
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


def variables(env_files: Sequence[str]) -> dict[str, str]:
    """Return what files of variables give to a container."""
    given: dict[str, str | None] = {}
    for path in env_files:
        with reading(path), open(path, encoding="utf-8-sig", errors="replace") as file:
            rows = (line.lstrip().partition("=") for line in file.read().splitlines())
            given |= {name: text if sign else os.environ.get(name) for name, sign, text in rows}
    return {name: text for name, text in given.items() if text is not None}


def container(name: str, wanted: str | None = None) -> EngineContainer:
    """Find a container by its name. Raises ``UsageError`` if no engine here has it."""
    if not _NAME.match(name):
        raise UsageError(f"{name!r} is not a name for a container", hint="docker ps --all")
    programs = installed(wanted)
    for program in programs:
        done = engine_command.run(program, "container", "inspect", name)
        if not done.code:
            (raw,) = json.loads(done.out)
            return _container(program, raw)
    why = f"{' and '.join(programs)}: no container {name}"
    raise UsageError(why, hint=f"{programs[0]} ps --all")


def containers(program: str) -> tuple[EngineContainer, ...]:
    """Return those of an engine that ``run`` started. Raises ``TreeError`` if it does not answer."""
    label = f"label={PAIRING_LABEL}"
    names = engine_command.call(program, "ps", "--all", "--quiet", "--filter", label).split()
    if not names:
        return ()
    listed = json.loads(engine_command.call(program, "container", "inspect", *names))
    return tuple(_container(program, raw) for raw in listed)


def _container(program: str, raw: Mapping[str, Any]) -> EngineContainer:
    state, config, host = raw["State"], raw["Config"], raw.get("HostConfig") or {}
    bound = (host.get("PortBindings") or {}).values()
    return EngineContainer(
        program,
        raw["Name"].removeprefix("/"),
        config.get("Labels") or {},
        bool(state["Running"]),
        int(raw.get("RestartCount") or 0),
        state["StartedAt"],
        state=state["Status"],
        exit_code=int(state.get("ExitCode") or 0),
        out_of_memory=bool(state.get("OOMKilled")),
        memory=int(host.get("Memory") or 0),
        ports=tuple(f"{at['HostIp']}:{at['HostPort']}" for each in bound for at in each or ()),
        command=(raw.get("Path") or "", *(raw.get("Args") or ())),
        folders={at["Destination"]: at.get("Source", "") for at in raw.get("Mounts") or ()},
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
