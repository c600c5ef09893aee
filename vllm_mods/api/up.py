"""From a pairing's name to a server that answers: what is not there or has moved is locked and built, then it starts."""

import os
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vllm_mods.api import build as building, on_base
from vllm_mods.api.access import Access
from vllm_mods.api.run import (
    ServedPairing,
    StartedContainer,
    check_single,
    plan_service,
    run,
    wait_for,
)
from vllm_mods.base.errors import Refused
from vllm_mods.library.catalog import Library
from vllm_mods.running import engine
from vllm_mods.running.engine import EngineContainer
from vllm_mods.running.service import LOCK_LABEL, TYPED_LABEL, StartOptions, Typed

_OF_MODEL = ("model_folder", "device_memory")


class UpStep(NamedTuple):
    """A command on the way, ``lock``, ``build`` or ``run``; whether it is ``needed``, and why in words."""

    command: str
    needed: bool
    why: str


class UpPlan(NamedTuple):
    """The steps to a server that answers; ``running`` is the container that is it already."""

    steps: tuple[UpStep, UpStep, UpStep]
    running: StartedContainer | None = None


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
    start = UpStep("run", True, "the image is new")
    if not os.path.exists(path):
        lock = UpStep("lock", True, f"{at} does not exist")
        return UpPlan((lock, UpStep("build", True, "the lock is new"), start))
    locked, _ = on_base.find_lock(library, pairing, options.lock)
    named, base = library.pairing(pairing).base, locked.lock.base.ref
    where: dict[str, Any] = {key: getattr(options, key) for key in _OF_MODEL}
    moved = building.moved_since(library, pairing, output=options.lock, access=access, **where)
    if moved and base != named:
        raise Refused(
            f"{at} is to be made again, and it is for {base}, while the pairing names {named}",
            hint=f"vllm-mods lock {pairing} --base {base}, or vllm-mods lock {pairing}",
        )
    if moved:
        lock = UpStep("lock", True, "; ".join(map(str, moved)))
        return UpPlan((lock, UpStep("build", True, "the lock is new"), start))
    lock = UpStep("lock", False, f"{at} holds, on {base}")
    served = plan_service(library, pairing, options, arguments, note=access.note)
    check_single(pairing, served.service)
    image = served.service.image
    holders = (
        one
        for one in engine.installed(program)
        if (engine.labels(one, image) or {}).get(LOCK_LABEL) == served.lock
    )
    if (holder := next(holders, None)) is None:
        return UpPlan((lock, UpStep("build", True, f"no engine here has {image}"), start))
    build = UpStep("build", False, f"{holder} has {image}")
    name, running = served.service.name, None
    for old in engine.containers(holder):
        if old.name == name and _is_as_planned(old, served):
            running = StartedContainer(served.service, old.program, name)
    state = f"{name} {'runs' if running else 'does not run as planned'}"
    return UpPlan((lock, build, UpStep("run", running is None, state)), running)


def _is_as_planned(old: EngineContainer, served: ServedPairing) -> bool:
    """Tell whether a container runs the image of the lock, with the port and the arguments that are planned."""
    planned = served.service
    _, _, behind = f"{old.labels.get(TYPED_LABEL, '')} ".partition(" -- ")
    return (
        old.state == "running"
        and old.labels.get(LOCK_LABEL) == served.lock
        and planned.published.rpartition(":")[0] in old.ports
        and shlex.split(behind) == [*planned.arguments]
    )


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
) -> StartedContainer:
    """Lock and build a pairing where that is not done or something has moved, start it, and wait until it serves.

    Arguments are those of ``run``; ``announce`` is told the steps first. A container that runs as planned is waited
    for, any other of ``run`` by its name is replaced. Raises as these three; what was done before stays.
    """
    planned = plan_up(library, pairing, arguments, options, program=program, access=access)
    announce(planned.steps)
    if planned.running is not None:
        return wait_for(library, pairing, planned.running, progress, access)
    lock, build, _ = (step.needed for step in planned.steps)
    where: dict[str, Any] = {key: getattr(options, key) for key in _OF_MODEL}
    if lock:
        building.lock(library, pairing, output=options.lock, access=access, **where)
    if build:
        building.build(library, pairing, lock=options.lock, access=access, **where)
    return run(
        library,
        pairing,
        arguments,
        options,
        program=program,
        env_files=env_files,
        wait=True,
        replace=True,
        typed=typed,
        progress=progress,
        access=access,
    )
