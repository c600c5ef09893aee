"""What a container of a pairing is started with, in whatever form: image, port, mounts, GPUs; and the line for it. Pure."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import secrets
from vllm_mods.base.errors import UsageError
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.images.engine_command import PODMAN
from vllm_mods.scripts.command_line import flag_number

PAIRING_LABEL = "vllm-mods.run"
"""On every container that ``run`` starts: the pairing's name."""
LOCK_LABEL = "vllm-mods.lock"
CACHE = "/root/.cache/huggingface"
"""Where the Hub's client keeps models in vLLM's images."""
_RAY_PORT = 6379
WORKER = (
    f'until ray start --address="${{HEAD_IP:?the address of the head}}:{_RAY_PORT}" '
    '--node-ip-address="$VLLM_HOST_IP" --block; do sleep 5; done'
)
"""The script of every node of a cluster but the first, which it joins; then it waits."""
_PORT = 8000
_GPUS = re.compile(r"(all|none|\d+(,\d+)*)\Z", re.ASCII)
_SHM = re.compile(r"[0-9]+([kmgt]i?)?b?\Z", re.IGNORECASE | re.ASCII)
# Commas, colons and quotes divide the words of docker, podman and compose; ``$`` is written as each takes it.
_NO_PATH = re.compile(r"""[\x00-\x1f\x7f,:"\\]""")
_RESTART = re.compile(r"(no|always|unless-stopped|on-failure(:\d+)?)\Z", re.ASCII)


class Mount(NamedTuple):
    """A folder of the host in the container."""

    source: str
    target: str
    read_only: bool = False


class Service(NamedTuple):
    """A container that serves a pairing.

    ``port`` is the host's, ``inside`` the one that vLLM listens on. ``gpus`` is ``all``, ``none`` or numbers with
    commas. ``arguments`` are put behind the image's command.
    ``command`` is the text of that command, which a node of a ``cluster`` runs when Ray is up.
    """

    name: str
    pairing: str
    image: str
    command: str
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    port: int
    inside: int
    gpus: str
    shm: str
    restart: str
    arguments: tuple[str, ...]
    cluster: bool


class StartOptions(NamedTuple):
    """What is asked of a container; None for what the pairing, its lock or the host's environment says.

    The fields have the names of the options. ``model_cache`` is the host's folder of models of the Hub,
    ``model_folder`` that of this very model, where the pairing names a path; ``device_memory`` is that of each GPU.
    """

    lock: str | None = None
    image: str | None = None
    name: str | None = None
    port: int | None = None
    gpus: str = "all"
    shm_size: str = "16g"
    model_cache: str | None = None
    model_folder: str | None = None
    device_memory: str | None = None
    restart: str = "unless-stopped"


def service(
    wanted: Pairing,
    asked: StartOptions,
    *,
    image: str,
    command: str,
    cache: str,
    beside: tuple[str, str] | None = None,
    arguments: tuple[str, ...] = (),
) -> Service:
    """Return how a pairing's ``image`` is started, ``image`` being the one where no other is asked for, ``cache`` the host's folder of models.

    ``beside`` is a folder that the model's own needs with it, and the way from there to it.

    Raises ``UsageError`` for what no engine would take.
    """
    if not _GPUS.match(asked.gpus):
        raise UsageError(f"--gpus {asked.gpus}: expected all, none or numbers", hint="--gpus 0,1")
    if not _SHM.match(asked.shm_size):
        raise UsageError(f"--shm-size {asked.shm_size}: not a size", hint="--shm-size 16g")
    if not _RESTART.match(asked.restart):
        raise UsageError(
            f"--restart {asked.restart}: not a restart policy",
            hint="no, always, unless-stopped, on-failure or on-failure:N",
        )
    words = (*pairings.arguments(wanted), *arguments)
    inside = flag_number(words, _PORT, "--port")
    at_path = wanted.model.startswith("/")
    if asked.model_folder is not None and not at_path:
        raise UsageError(
            f"--model-folder is for a pairing that names a path, and {wanted.name} names {wanted.model} on the Hub",
            hint="--model-cache DIR",
        )
    mount = (
        Mount(asked.model_folder or wanted.model, wanted.model, read_only=True)
        if at_path
        else Mount(cache, CACHE)
    )
    mounts: tuple[Mount, ...] = (mount,)
    if beside is not None:
        place = os.path.normpath(os.path.join(wanted.model, beside[1]))
        mounts += (Mount(beside[0], place, read_only=True),)
    for path in (path for each in mounts for path in each[:2]):
        if _NO_PATH.search(path) or os.path.normpath(path) != path:
            raise UsageError(
                f'{path!r} cannot be mounted: an absolute path without .. and without , : " \\ is needed',
                hint="--model-folder DIR",
            )
    ranks = pairings.ranks(words)
    cluster = wanted.topology == "cluster"
    per_node = -(-ranks // 2) if cluster else ranks
    named = asked.gpus.split(",") if asked.gpus[0].isdigit() else ()
    if named and len(named) < per_node:
        raise UsageError(
            f"--gpus {asked.gpus}: the command starts {per_node} ranks on a node, and each needs its own GPU",
            hint="--gpus all, or name that many GPUs",
        )
    started = Service(
        name=asked.name or wanted.name,
        pairing=wanted.name,
        image=asked.image or image,
        command=command,
        env=wanted.env,
        mounts=mounts,
        port=asked.port or inside,
        inside=inside,
        gpus=asked.gpus,
        shm=asked.shm_size,
        restart=asked.restart,
        arguments=arguments,
        cluster=cluster,
    )
    # an engine, or a file that is kept, would show it
    if leaks := secrets.problems(started._asdict()):
        raise UsageError(f"{wanted.name}: {leaks[0]}", hint="--env-file FILE")
    return started


def line(program: str, planned: Service, *, env_files: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words of ``docker run`` or ``podman run``."""
    words = [program, "run", "--detach", "--name", planned.name]
    words += ["--label", f"{PAIRING_LABEL}={planned.pairing}", "--restart", planned.restart]
    words += [*_gpus(program, planned.gpus), "--shm-size", planned.shm]
    words += ["--publish", f"{planned.port}:{planned.inside}"]
    for source, target, read_only in planned.mounts:
        # a model has to be there; docker would make an empty folder of a --volume that is not
        bind = f"type=bind,source={source},target={target},readonly"
        words += ["--mount", bind] if read_only else ["--volume", f"{source}:{target}"]
    for path in env_files:
        words += ["--env-file", os.path.abspath(path)]
    return (*words, planned.image, *planned.arguments)


def _gpus(program: str, gpus: str) -> list[str]:
    if gpus == "none":
        return []
    if program == PODMAN:  # by CDI, as nvidia-ctk writes it
        return [word for each in gpus.split(",") for word in ("--device", f"nvidia.com/gpu={each}")]
    return ["--gpus", "all" if gpus == "all" else f'"device={gpus}"']


def head(planned: Service) -> str:
    """Return the script of a cluster's first node: Ray, then the command, as launchers of recipes do it."""
    ray = f'ray start --head --port={_RAY_PORT} --node-ip-address="$VLLM_HOST_IP" || exit 1'
    return f"{ray}\n{planned.command}"
