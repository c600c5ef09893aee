"""Images of a lock, one for each platform: what ``build`` and ``upgrade`` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.api.on_base import OnBase, ReadLock
from vllm_mods.base.errors import UsageError
from vllm_mods.building import building, outputs
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import Output
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.images.model import Base
from vllm_mods.images.oci import platform_of


class BuiltFor(NamedTuple):
    """An image, what it is built on, and the lock as it is for its platform."""

    lock: PairingLock
    built: BuiltImage
    base: Base


def build_all(kept: ReadLock, opened: Sequence[OnBase]) -> list[BuiltFor]:
    """Build the image of a lock for each platform whose base is open."""
    parts = pairing_lock.by_platform(kept.lock)
    images = []
    for one in opened:
        part = parts[one.drafted.lock.base.platform]
        built = building.build(one.base, one.drafted._replace(lock=part), kept.data)
        images.append(BuiltFor(part, built, one.base))
    return images


def check_room(
    lock: PairingLock, opened: Sequence[OnBase], place: Output, platform: str | None
) -> None:
    """Raise ``UsageError`` where not all that a lock is of would be in one place, and nobody has said so."""
    every, base = list(pairing_lock.by_platform(lock)), opened[0].base
    if len(opened) > 1 and place.kind not in outputs.SEVERAL:
        raise UsageError(
            f"--output {place.kind} has room for one image, and the lock is of {' and '.join(every)}",
            hint=f"--platform {every[0]}, or --output registry:REF or oci:DIR for an index of all",
        )
    if len(opened) < len(every) and platform is None and place.kind in outputs.SEVERAL:
        raise UsageError(
            f"the lock is of {' and '.join(every)}, and {base.where} has one of them of {base.reference}",
            hint=f"--base registry:{lock.base.ref}, or --platform {platform_of(base.config)}",
        )
