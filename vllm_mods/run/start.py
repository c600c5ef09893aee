"""The line that starts a container with docker or podman. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vllm_mods.run.service import PAIRING_LABEL, Service

PODMAN = "podman"


def line(program: str, one: Service, *, env_files: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words of ``docker run`` or ``podman run``."""
    words = [program, "run", "--detach", "--name", one.name]
    words += ["--label", f"{PAIRING_LABEL}={one.pairing}", "--restart", one.restart]
    words += [*_gpus(program, one.gpus), "--shm-size", one.shm]
    words += ["--publish", f"{one.port}:{one.inside}"]
    for source, target, read_only in one.mounts:
        # a model has to be there; docker would make an empty folder of a --volume that is not
        bind = f"type=bind,source={source},target={target},readonly"
        words += ["--mount", bind] if read_only else ["--volume", f"{source}:{target}"]
    for path in env_files:
        words += ["--env-file", os.path.abspath(path)]
    return (*words, one.image, *one.arguments)


def _gpus(program: str, gpus: str) -> list[str]:
    if gpus == "none":
        return []
    if program == PODMAN:  # by CDI, as nvidia-ctk writes it
        return [word for each in gpus.split(",") for word in ("--device", f"nvidia.com/gpu={each}")]
    return ["--gpus", "all" if gpus == "all" else f'"device={gpus}"']
