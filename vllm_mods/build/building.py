"""From a resolved pairing to an image: base, lock and the locked wheels in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from vllm_mods.build import layer, oci
from vllm_mods.build.content import content
from vllm_mods.build.layer import Node
from vllm_mods.build.oci import BuiltImage
from vllm_mods.build.resolving import Resolved
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.images.model import Base
from vllm_mods.site import transitions

_FROM_BASE = ("org.opencontainers.image.source", "org.opencontainers.image.revision")


class Built(NamedTuple):
    """An image and what it is called; ``removed`` are the paths of the base that it hides."""

    image: BuiltImage
    tag: str
    removed: tuple[str, ...]


def build(base: Base, resolved: Resolved, data: bytes, wheels: Iterable[Node] = ()) -> Built:
    """Build the image of a lock whose bytes are ``data``; ``wheels`` are the unpacked packages.

    Nothing in it depends on this machine, this moment or the place the base was read from. Raises
    ``Refused`` for what ``apply`` refuses.
    """
    lock = resolved.lock
    site_root = lock.vllm.site_root
    nodes = [
        Node(path=f"{site_root}/{pairing_lock.PLACE}", data=data, mode=0o644, mtime=lock.epoch),
        *wheels,
    ]
    gone: tuple[str, ...] = ()
    if any(one.verdict.writes for one in resolved.planned.mods):
        written = content(
            base,
            site_root,
            resolved.there,
            transitions.forward(resolved.planned, resolved.there),
            epoch=lock.epoch,
        )
        nodes += written.nodes
        gone = written.gone
    image = oci.append(
        base.config,
        base.layers,
        layer.write(base, nodes, gone, epoch=lock.epoch),
        created_by=f"vllm-mods build {lock.pairing}",
        labels=labels(base, lock, data),
        epoch=lock.epoch,
    )
    return Built(image=image, tag=pairing_lock.tag(lock, data), removed=gone)


def labels(base: Base, lock: PairingLock, data: bytes) -> dict[str, str]:
    """Return what an image says of itself, in its labels and in its manifest's annotations.

    Source and revision are those of the base: they say where its vLLM comes from, and that is so.
    """
    settings = json.loads(base.config).get("config") or {}
    below = settings.get("Labels") or {}
    name = "org.opencontainers.image"
    found = {key: below[key] for key in _FROM_BASE if below.get(key)} | {
        f"{name}.title": lock.pairing,
        f"{name}.version": pairing_lock.tag(lock, data).rpartition(":")[2],
        f"{name}.created": oci.timestamp(lock.epoch),
        f"{name}.base.name": lock.base.ref,
        "vllm-mods.pairing": lock.pairing,
        "vllm-mods.model": lock.model,
        "vllm-mods.lock": f"sha256:{pairing_lock.digest(data)}",
        "vllm-mods.mods": " ".join(f"{mod.name}@{mod.version}" for mod in lock.mods),
    }
    if lock.base.manifest is not None:
        found[f"{name}.base.digest"] = lock.base.manifest
    return found
