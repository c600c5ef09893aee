"""A pairing's image as a container that serves, and whether the mods' code ran in it."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vllm_mods.api import on_base
from vllm_mods.api.access import Access
from vllm_mods.api.model import look_at_model
from vllm_mods.api.serving_image import ServedPairing, of_base, of_image, open_image
from vllm_mods.applying.shadow import UsedCopy, used_copies
from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, TreeError, UsageError, VllmModsError
from vllm_mods.checkpoints import sources
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import taken_over
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.running import engine, evidence as looking, service, starting
from vllm_mods.running.failure import FailedStart, failure_of
from vllm_mods.running.recording import record_service
from vllm_mods.running.service import LOCK_LABEL, MODS_LABEL, PAIRING_LABEL, Service, Typed, line

_STOPPED = {0, 130, 137, 143}
"""The exit codes of what was stopped."""


class StartedContainer(NamedTuple):
    """A container that a ``program`` (docker or podman) started; ``evidence`` is that of the mods, if it was waited for."""

    service: Service
    program: str
    identity: str
    evidence: looking.ServerEvidence | None = None


class ListedContainer(NamedTuple):
    """A container that ``run`` started: the ``evidence`` of its mods if it runs, its ``failure`` if it had one."""

    container: engine.EngineContainer
    evidence: looking.ServerEvidence | None = None
    failure: FailedStart | None = None


def plan_service(
    library: Library,
    pairing: str,
    options: service.StartOptions,
    arguments: Sequence[str] = (),
    *,
    note: Callable[[str], None],
    elsewhere: bool = False,
    mount: bool = False,
) -> ServedPairing:
    """Read a pairing and its lock, and return what is to be started. Raises as ``run``.

    ``note`` is told which folder of this machine a pairing has its container read. It may start ``elsewhere``: then
    the model need not be here. With ``mount`` its image is the base.
    """
    named = library.pairing(pairing)
    mods = library.select(library.mods_of(named))
    wanted = taken_over(named, mods).pairing
    locked, of_library = on_base.find_lock(library, pairing, options.lock)
    trust.demand_pairing(library, pairing, *of_library)
    hub = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    cache = os.path.abspath(options.model_cache or hub)
    folder, is_here, at_path = options.model_folder, not elsewhere, wanted.model.startswith("/")
    if at_path:
        folder, is_here = _model_folder(wanted, folder, note, elsewhere=elsewhere)
        trust.demand_model(folder)
    model = None
    if is_here:
        model = look_at_model(
            named,
            mods,
            folder=folder,
            memory=options.device_memory,
            arguments=arguments,
            here=True,
            on_gpu=options.gpus != "none",
            environ={"HF_HOME": cache},
            note=note,
        )
    blobs = sources.blobs_of(folder) if folder and is_here and at_path else None
    if blobs is not None:
        trust.demand_model(blobs)
    planned = service.service(
        wanted,
        options._replace(model_folder=folder),
        command=locked.lock.command,
        cache=cache,
        image=locked.lock.base.ref if mount else locked.tag,
        arguments=tuple(arguments),
        beside=None if blobs is None else (blobs, sources.BLOBS),
    )
    return ServedPairing(planned, locked, of_library, mount, model)


def _model_folder(
    wanted: Pairing, chosen: str | None, note: Callable[[str], None], *, elsewhere: bool
) -> tuple[str, bool]:
    """Return the folder that stands for a pairing's model, without a link in its path, and whether it is here.

    It is the ``chosen`` one, or what the pairing names, which is noted.
    """
    folder = os.path.realpath(chosen or wanted.model)
    if elsewhere and not os.path.lexists(chosen or wanted.model):
        note(f"the model folder {folder} is not on this machine, so it was not checked")
        return folder, False
    if chosen is None:
        note(f"{folder} of this machine is mounted into the container as {wanted.model}")
    return folder, True


def run(
    library: Library,
    pairing: str,
    arguments: Sequence[str],
    options: service.StartOptions,
    *,
    program: str | None = None,
    env_files: Sequence[str] = (),
    wait: bool = False,
    replace: bool = False,
    mount: bool = False,
    record: str | None = None,
    typed: Typed | None = None,
    progress: Callable[[int, str], None] = lambda _seconds, _phase: None,
    access: Access,
) -> StartedContainer:
    """Start a pairing's image as a container that serves, in docker or podman.

    ``arguments`` come behind the command in the image, ``program`` is the engine (without it, the one that has the
    image), ``env_files`` have secrets. With ``wait``, return when it serves, with the evidence of its mods;
    ``progress`` is called meanwhile, as by ``starting.wait``. With ``replace``, a container of ``run`` that has the
    name is removed first. ``mount`` starts the plain image, and binds into it what the mods change; ``record`` is the
    file in which the code of the mods notes that it runs. ``typed`` are the words of this call, of which hints make the next.
    Raises ``Refused``, with nothing started, for an image of another lock and for what the vLLM in it would not
    take; ``UsageError`` where there is no image, and for a pairing of a cluster.
    """
    served = plan_service(library, pairing, options, arguments, note=access.note, mount=mount)
    check_single(pairing, served.service)
    found = _demand_program(served, program, options)
    if mount:
        served = of_base(library, served, found, access)
    elif record is not None:
        served = of_image(served, found, access)
    how: dict[str, Any] = {"env_files": env_files, "replace": replace, "typed": typed}
    started = start(served, found, record=record, access=access, **how)
    return wait_for(library, pairing, started, progress, access) if wait else started


def start(
    served: ServedPairing,
    program: str,
    *,
    env_files: Sequence[str],
    replace: bool,
    typed: Typed | None,
    record: str | None = None,
    access: Access,
) -> StartedContainer:
    """Start what is planned with the engine that has the image. Arguments are those of ``run``."""
    planned = served.service
    behind = ("--", *planned.arguments) if planned.arguments else ()
    typed = typed or Typed(("run", planned.pairing, *behind))
    if served.plan is None:
        try:
            open_image(served, program, access)
        except (TreeError, UsageError) as error:
            why = "the container is started although its serve command was not checked"
            access.note(f"{why}: {error.message}")
    else:
        given = engine.variables(env_files)  # --env would go before them
        added = {name: text for name, text in planned.added.items() if name not in given}
        planned = planned._replace(added=added)
        if record is not None:
            path = {**served.variables, **given}.get("PYTHONPATH")
            planned = record_service(record, program, planned, served.root, served.plan, path=path)
    words = line(program, planned, env_files=env_files)
    try:
        identity = starting.start(words, planned, typed, replace=replace)
    except VllmModsError:
        if record is not None:
            os.unlink(record)
        raise
    return StartedContainer(planned, program, identity)


def wait_for(
    library: Library,
    pairing: str,
    started: StartedContainer,
    progress: Callable[[int, str], None],
    access: Access,
) -> StartedContainer:
    """Wait until a container serves, and return it with the evidence of its mods. Raises as ``starting.wait``."""
    planned, program = started.service, started.program
    starting.wait(planned, program, progress)
    starting.keep(planned, program, access.note)
    seen = of_container(library, (pairing,), engine.container(planned.name, program), access)
    return started._replace(evidence=seen._replace(ready=True))


def check_single(pairing: str, planned: Service) -> None:
    """Raise ``UsageError`` for what runs on several nodes."""
    if planned.cluster:
        why = f"{pairing} is for a cluster: each node starts its own container"
        raise UsageError(why, hint=f"vllm-mods export {pairing} --format compose")


def find_program(served: ServedPairing, program: str | None) -> tuple[str | None, dict[str, str]]:
    """Return the engine that has the image of the lock, None if none has it; and the locks of others by its name, by engine."""
    image = served.service.image
    told = ((name, engine.labels(name, image)) for name in engine.installed(program))
    locks = {name: has.get(LOCK_LABEL) or "no lock" for name, has in told if has is not None}
    fits = (name for name, lock in locks.items() if served.mount or lock == served.lock)
    return next(fits, None), locks


def _demand_program(
    served: ServedPairing, program: str | None, options: service.StartOptions
) -> str:
    """Return the engine that has the image of the lock. Raises ``Refused`` for one of another, ``UsageError`` for none."""
    image, build = served.service.image, f"vllm-mods build {served.service.pairing}"
    found, others = find_program(served, program)
    if found is not None:
        return found
    for name, lock in others.items():
        why = f"{name} has {image}, but that image was built from another lock ({lock}); nothing was started"
        raise Refused(why, hint=build)
    names = engine.installed(program)
    hint = f"{names[0]} pull {image}" if served.mount or options.image else build
    raise UsageError(f"{' and '.join(names)}: image {image} not found", hint=hint)


class ListedContainers(NamedTuple):
    """The containers that ``run`` started, the engines here that did not answer, and the copies of ``with`` in use."""

    containers: tuple[ListedContainer, ...]
    silent: tuple[str, ...] = ()
    copies: tuple[UsedCopy, ...] = ()


def list_containers(library: Library, access: Access) -> ListedContainers:
    """Return the containers that ``run`` started, of each engine here, and the copies that are in use.

    Raises ``UsageError`` where there is neither engine nor copy, ``TreeError`` where no engine answers.
    """
    listed: list[ListedContainer] = []
    copies = tuple(used_copies())
    programs = engine.engines_here() if copies else engine.installed()
    silent: list[str] = []
    for program in programs:
        try:
            listed += [_look_at(library, each, access) for each in engine.containers(program)]
        except TreeError as error:
            silent.append(program)
            if len(silent) == len(programs) and not copies:
                raise
            access.note(f"{error.message} (the containers of this engine are not listed)")
    return ListedContainers(tuple(listed), tuple(silent), copies)


def _look_at(library: Library, each: engine.EngineContainer, access: Access) -> ListedContainer:
    """Return what a container's log tells: of one that runs whether its mods do, of one that failed why."""
    listed = ListedContainer(each)
    names = () if each.labels.get(MODS_LABEL) else (each.labels[PAIRING_LABEL],)
    if each.running and each.state != "restarting":
        try:
            listed = listed._replace(evidence=of_container(library, names, each, access))
        except VllmModsError as error:
            access.note(f"{each.name}: {error.message}")
    if each.restarts or each.out_of_memory or (not each.running and each.exit_code not in _STOPPED):
        listed = listed._replace(failure=failure_of(each, engine.log(each)))
    return listed


def of_container(
    library: Library, names: Sequence[str], running: engine.EngineContainer, access: Access
) -> looking.ServerEvidence:
    """Tell whether the code of mods ran, by what a container of docker or podman said since its last start.

    ``names`` are mods and pairings; without them the mods that its image has. Raises ``UsageError`` where there are none.
    """
    label = running.labels.get(MODS_LABEL, "")
    names = names or tuple(word.partition("@")[0] for word in label.split())
    log = engine.log(running, since=running.started)
    seen = of_log(library, names, log, f"{running.program} logs {running.name}", access)
    return seen._replace(restarts=seen.restarts + running.restarts)


def of_log(
    library: Library, names: Sequence[str], log: bytes, log_name: str, access: Access
) -> looking.ServerEvidence:
    """Tell whether the code of mods and pairings ran, by a server's log. Raises ``UsageError`` where none is named."""
    if not names:
        why = f"no mod or pairing was named, and {log_name} does not show which ones were used"
        raise UsageError(why, hint="vllm-mods list  # then name one of these")
    if len(log) > limits.LOG:
        access.note(f"{log_name} is too long: only the first {limits.LOG} were searched")
    each = (library.pairing(name) if library.has_pairing(name) else name for name in names)
    return looking.of_mods(library.mods(*each), log[: limits.LOG])
