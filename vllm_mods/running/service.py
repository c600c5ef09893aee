"""What a container of a pairing is started with, in whatever form: image, port, mounts, GPUs; and the line for it. Pure."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import secrets
from vllm_mods.base.errors import UsageError
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.container import health
from vllm_mods.images.engine_command import PODMAN
from vllm_mods.scripts.command_line import flag_number, flag_value

PAIRING_LABEL = "vllm-mods.run"
"""On every container that ``run`` starts: the pairing's name."""
TYPED_LABEL = "vllm-mods.typed"
"""On each of these: the words that started it, of which a hint makes the next line to type."""
LOCK_LABEL, MODS_LABEL = "vllm-mods.lock", "vllm-mods.mods"
MOUNTED_LABEL = "vllm-mods.mounted"
"""On each whose image has no mods: they are bound into it."""
_KEPT, _ON_TRIAL = "unless-stopped", "on-failure:3"
"""The restart policy of what has served, and of what has not yet: that would load its weights for ever."""
CACHE = "/root/.cache/huggingface"
"""Where the Hub's client keeps models in vLLM's images."""
_RAY_PORT = 6379
WORKER = (
    f'until ray start --address="${{HEAD_IP:?the address of the head}}:{_RAY_PORT}" '
    '--node-ip-address="$VLLM_HOST_IP" --block; do sleep 5; done'
)
"""The script of every node of a cluster but the first, which it joins; then it waits."""
_PORT = 8000
_REACHED = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104
_GPUS = re.compile(r"(all|none|\d+(,\d+)*)\Z", re.ASCII)
_SHM = re.compile(r"[0-9]+([kmgt]i?)?b?\Z", re.IGNORECASE | re.ASCII)
# Commas, colons and quotes divide the words of docker, podman and compose; ``$`` is written as each takes it.
_NO_PATH = re.compile(r"""[\x00-\x1f\x7f,:"\\]""")
_ADDRESS = re.compile(r"(\d+(\.\d+){3}|[\da-f.]*:[\da-f.:]*)\Z", re.ASCII)
_RESTART = re.compile(r"(no|always|unless-stopped|on-failure(:\d+)?)\Z", re.ASCII)


class Mount(NamedTuple):
    """A folder or file of the host in the container."""

    source: str
    target: str
    read_only: bool = False


class Service(NamedTuple):
    """A container that serves a pairing.

    ``port`` is the host's, ``published`` that and the one that vLLM listens on, as engines take it, ``url``
    where this machine asks. ``gpus`` is ``all``, ``none`` or numbers with commas. ``arguments`` are put behind the
    image's command. ``command`` is the text of that command, which a node of a ``cluster`` runs when Ray is up.
    ``restart`` is the policy of a server that has served, ``restart_at_first`` the one until then. ``health`` is asked
    in place of the image's own check, where the arguments move what that asks. ``labels``, variables (``added``) and
    ``entrypoint`` are what its image does not have.
    """

    name: str
    pairing: str
    image: str
    command: str
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    port: int
    published: str
    url: str
    gpus: str
    shm: str
    restart: str
    restart_at_first: str
    health: tuple[str, ...] | None
    arguments: tuple[str, ...]
    cluster: bool
    labels: Mapping[str, str] = {}
    added: Mapping[str, str] = {}
    entrypoint: tuple[str, ...] = ()


class Typed(NamedTuple):
    """The ``words`` of a ``run``, behind ``vllm-mods``."""

    words: tuple[str, ...]

    @property
    def label(self) -> str:
        """The words but for a record, which is there when they are typed again."""
        words = tuple(word for word in self.words if not word.startswith("--record="))
        at = words.index("--record") if "--record" in words else len(words)
        return shlex.join(words[:at] + words[at + 2 :])

    def again(self, *options: tuple[str, ...], arguments: tuple[str, ...] = ()) -> str:
        """Return the line to type next: the same with these options, and with these arguments of vLLM's."""
        end = self.words.index("--") if "--" in self.words else len(self.words)
        front, behind = list(self.words[:end]), list(self.words[end + 1 :])
        for option in options:
            _put(front, option)
        _put(behind, arguments)
        return shlex.join(("vllm-mods", *front, *(("--", *behind) if behind else ())))


def _put(words: list[str], option: tuple[str, ...]) -> None:
    """Put an option with its value behind words, in place of what they have of it; of files with secrets there may be several."""
    if option and option[0] in words and option[0] != "--env-file":
        place = words.index(option[0])
        del words[place : place + len(option)]
    words += option


class StartOptions(NamedTuple):
    """What is asked of a container; None for what the pairing, its lock or the host's environment says.

    The fields have the names of the options. ``model_cache`` is the host's folder of models of the Hub,
    ``model_folder`` that of this very model, where the pairing names a path; ``device_memory`` is that of each GPU.
    """

    lock: str | None = None
    image: str | None = None
    name: str | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    gpus: str = "all"
    shm_size: str = "16g"
    model_cache: str | None = None
    model_folder: str | None = None
    device_memory: str | None = None
    restart: str | None = None


def service(
    wanted: pairings.Pairing,
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
    if asked.restart is not None and not _RESTART.match(asked.restart):
        why = f"--restart {asked.restart}: not a restart policy"
        raise UsageError(why, hint="no, always, unless-stopped, on-failure or on-failure:N")
    words = (*pairings.arguments(wanted), *arguments)
    inside = flag_number(words, _PORT, "--port")
    cluster = wanted.topology == "cluster"
    _check_hosts(wanted.name, asked.host, "" if cluster else flag_value(words, "--host") or "")
    port, host = asked.port or inside, asked.host
    host = f"[{host}]" if ":" in host else host
    moves = ("--host", "--port", "--ssl-certfile")
    moved = any(flag_value(arguments, flag) is not None for flag in moves)
    tls = flag_value(words, "--ssl-certfile") is not None
    at_path = wanted.model.startswith("/")
    if asked.model_folder is not None and not at_path:
        why = f"--model-folder is for a pairing whose model is a path, but the model of {wanted.name} is {wanted.model} on the Hub"
        raise UsageError(why, hint="--model-cache DIR")
    mounts: tuple[Mount, ...] = (Mount(cache, CACHE),)
    if at_path:
        mounts = (Mount(asked.model_folder or wanted.model, wanted.model, read_only=True),)
    if beside is not None:
        place = os.path.normpath(os.path.join(wanted.model, beside[1]))
        mounts += (Mount(beside[0], place, read_only=True),)
    check_mounts(mounts, "--model-folder DIR")
    ranks = pairings.ranks(words)
    per_node = -(-ranks // 2) if cluster else ranks
    named = asked.gpus.split(",") if asked.gpus[0].isdigit() else ()
    if named and len(named) < per_node:
        why = f"--gpus {asked.gpus}: the command starts {per_node} ranks on a node, and each needs its own GPU"
        raise UsageError(why, hint="--gpus all, or name that many GPUs")
    started = Service(
        name=asked.name or wanted.name,
        pairing=wanted.name,
        image=asked.image or image,
        command=command,
        env=wanted.env,
        mounts=mounts,
        port=port,
        published=f"{host}:{port}:{inside}",
        url=f"http{'s' * tls}://{_REACHED.get(host, host)}:{port}",
        gpus=asked.gpus,
        shm=asked.shm_size,
        restart=asked.restart or _KEPT,
        restart_at_first=asked.restart or _ON_TRIAL,
        health=health(words, inside) if moved else None,
        arguments=arguments,
        cluster=cluster,
    )
    # an engine, or a file that is kept, would show it
    if leaks := secrets.problems(started._asdict()):
        raise UsageError(f"{wanted.name}: {leaks[0]}", hint="--env-file FILE")
    return started


def check_mounts(mounts: Iterable[Mount], hint: str) -> None:
    """Raise ``UsageError`` for a path that no engine takes."""
    for path in (path for each in mounts for path in each[:2]):
        if _NO_PATH.search(path) or os.path.normpath(path) != path:
            why = f'{path!r} cannot be mounted: the path must be absolute, without .. and without , : " \\'
            raise UsageError(why, hint=hint)


def _check_hosts(pairing: str, host: str, inside: str) -> None:
    """Raise ``UsageError`` for a ``host`` that is no address, and for vLLM's own, ``inside``, that no port leads to."""
    if not _ADDRESS.match(host):
        raise UsageError(f"--host {host}: not an IP address", hint="--host 0.0.0.0")
    if re.match(r"localhost$|127\.|::1$", inside):
        why = f"vLLM's --host {inside} is reachable only inside the container"
        hint = f"vllm-mods run {pairing} -- --host 0.0.0.0  # options after -- go to vLLM"
        raise UsageError(why, hint=hint)


def line(program: str, planned: Service, *, env_files: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words of ``docker run`` or ``podman run``."""
    words = [program, "run", "--detach", "--name", planned.name]
    labels = {PAIRING_LABEL: planned.pairing, **planned.labels}
    words += [word for pair in labels.items() for word in ("--label", "=".join(pair))]
    words += ["--restart", planned.restart_at_first]
    words += [*_gpus(program, planned.gpus), "--shm-size", planned.shm]
    words += ["--publish", planned.published]
    if planned.health is not None:
        words += ["--health-cmd", shlex.join(planned.health)]
    words += inside(planned)
    for path in env_files:
        words += ["--env-file", os.path.abspath(path)]
    command, *behind = planned.entrypoint or ("",)
    words += ["--stop-signal", "SIGINT", "--entrypoint", command] if command else []
    return (*words, planned.image, *behind, *planned.arguments)


def inside(planned: Service) -> list[str]:
    """Return the words of what a container has that its image has not: mounts and variables."""
    words = []
    for source, target, read_only in planned.mounts:
        # a model has to be there; docker would make an empty folder of a --volume that is not
        bind = f"type=bind,source={source},target={target},readonly"
        is_plain = read_only and "," not in target  # which --mount takes for its own
        volume = f"{source}:{target}{':ro' * read_only}"
        words += ["--mount", bind] if is_plain else ["--volume", volume]
    return words + [word for pair in planned.added.items() for word in ("--env", "=".join(pair))]


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
