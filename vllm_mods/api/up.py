"""From a pairing's name to a server that answers: what is not there or has moved is locked and built, then it starts."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vllm_mods.api import build as building, on_base, run as containers
from vllm_mods.api.access import Access
from vllm_mods.api.serving_image import ServedPairing
from vllm_mods.base.errors import Refused
from vllm_mods.library.catalog import Library
from vllm_mods.running import engine
from vllm_mods.running.service import LOCK_LABEL, TYPED_LABEL, StartOptions, Typed
from vllm_mods.scripts.command_line import flag_value

_OF_MODEL = ("model_folder", "device_memory")


class UpStep(NamedTuple):
    """A command on the way, ``lock``, ``build`` or ``run``; whether it is ``needed``, and why in words."""

    command: str
    needed: bool
    why: str


class UpPlan(NamedTuple):
    """The steps to a server that answers; ``running`` is the container that is it already.

    ``served`` is what is to be started where only that is left, with the engine ``program``.
    """

    steps: tuple[UpStep, UpStep, UpStep]
    running: containers.StartedContainer | None = None
    served: ServedPairing | None = None
    program: str = ""


def plan_up(
    library: Library,
    pairing: str,
    arguments: Sequence[str],
    options: StartOptions,
    *,
    program: str | None = None,
    access: Access,
) -> UpPlan:
    """Return what ``up`` would do; nothing is written. Raises as ``lock`` and ``run``."""
    path = on_base.lock_path(library, pairing, options.lock)
    at = os.path.relpath(path)
    new = UpStep("run", True, "the image is new")
    anew = UpStep("build", True, "the lock is new"), new
    if not os.path.exists(path):
        return UpPlan((UpStep("lock", True, f"{at} does not exist"), *anew))
    locked, _ = on_base.find_lock(library, pairing, options.lock)
    named, base = library.pairing(pairing).base, locked.lock.base.ref
    where: dict[str, Any] = {key: getattr(options, key) for key in _OF_MODEL}
    moved = building.moved_since(library, pairing, output=options.lock, access=access, **where)
    if moved and base != named:
        why = f"{at} is out of date, and its base is {base}, but the pairing names {named}"
        hint = f"vllm-mods lock {pairing} --base {base}, or vllm-mods lock {pairing}"
        raise Refused(why, hint=hint)
    if moved:
        return UpPlan((UpStep("lock", True, "; ".join(map(str, moved))), *anew))
    lock = UpStep("lock", False, f"{at} is up to date, for {base}")
    served = containers.plan_service(library, pairing, options, arguments, note=access.note)
    containers.check_single(pairing, served.service)
    image = served.service.image
    holder, _ = containers.find_program(served, program)
    if holder is None:
        return UpPlan((lock, UpStep("build", True, f"no engine here has {image}"), new))
    build = UpStep("build", False, f"{holder} has {image}")
    name = served.service.name
    old = next((one for one in engine.containers(holder) if one.name == name), None)
    if old is not None and _is_as_planned(old, served, options):
        running = containers.StartedContainer(served.service, old.program, name)
        return UpPlan((lock, build, UpStep("run", False, f"{name} already runs")), running)
    if old is None:
        why = f"there is no container {name}"
    elif old.state != "running":
        why = f"{name} is {old.state}"
    else:
        why = f"{name} runs with another image or other options"
    return UpPlan((lock, build, UpStep("run", True, why)), None, served, holder)


def _is_as_planned(old: engine.EngineContainer, served: ServedPairing, asked: StartOptions) -> bool:
    """Tell whether a container runs the image of the lock, with the port, folders, options and arguments that are planned."""
    planned = served.service
    front, _, behind = f"{old.labels.get(TYPED_LABEL, '')} ".partition(" -- ")
    for key in ("gpus", "shm_size", "restart"):
        before = flag_value(shlex.split(front), f"--{key.replace('_', '-')}")
        if (before or getattr(StartOptions(), key)) != getattr(asked, key):
            return False
    real = os.path.realpath
    has_folders = all(real(old.folders.get(to, of)) == real(of) for of, to, _ in planned.mounts)
    runs_it = old.state == "running" and old.labels.get(LOCK_LABEL) == served.lock
    has_port = planned.published.rpartition(":")[0] in old.ports
    return runs_it and has_port and has_folders and shlex.split(behind) == [*planned.arguments]


def up(
    library: Library,
    pairing: str,
    arguments: Sequence[str],
    options: StartOptions,
    *,
    program: str | None = None,
    env_files: Sequence[str] = (),
    typed: Typed | None = None,
    announce: Callable[[Sequence[UpStep]], None] = lambda _steps: None,
    progress: Callable[[int, str], None] = lambda _seconds, _phase: None,
    access: Access,
) -> containers.StartedContainer:
    """Lock and build a pairing where that is not done or something has moved, start it, and wait until it serves.

    Arguments are those of ``run``; ``announce`` is told the steps first. A container that runs as planned is waited
    for, any other of ``run`` by its name is replaced. Raises as these three; what was done before stays.
    """
    planned = plan_up(library, pairing, arguments, options, program=program, access=access)
    announce(planned.steps)
    started = planned.running
    how: dict[str, Any] = {"env_files": env_files, "replace": True, "typed": typed}
    if planned.served is not None:
        started = containers.start(planned.served, planned.program, access=access, **how)
    if started is not None:
        return containers.wait_for(library, pairing, started, progress, access)
    where: dict[str, Any] = {key: getattr(options, key) for key in _OF_MODEL}
    if planned.steps[0].needed:
        building.lock(library, pairing, output=options.lock, access=access, **where)
    building.build(library, pairing, lock=options.lock, access=access, **where)
    how |= {"program": program, "wait": True, "progress": progress}
    return containers.run(library, pairing, arguments, options, access=access, **how)
