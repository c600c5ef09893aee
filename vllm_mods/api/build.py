"""The image of a pairing's lock."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from typing import NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.api.on_base import (
    BuiltFor,
    OnBase,
    ReadLock,
    build_all,
    demand_serving,
    find_lock,
    on_bases,
    parts_of,
)
from vllm_mods.base.errors import Refused, refusing
from vllm_mods.building import outputs
from vllm_mods.building.outputs import Output, Written
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.images import names
from vllm_mods.library.catalog import Library


class BuildResult(NamedTuple):
    """The ``images`` of a lock, one per platform, under a ``tag`` in the ``output``; ``lock`` is the lock's sha256.

    ``written`` says what was done there.
    """

    images: tuple[BuiltFor, ...]
    tag: str
    output: Output
    written: Written
    lock: str


@refusing()
def build(
    library: Library,
    pairing: str,
    *,
    base: str | None = None,
    lock: str | None = None,
    output: str | None = None,
    tag: str | None = None,
    platform: str | None = None,
    access: Access | None = None,
) -> BuildResult:
    """Build the image of a pairing's lock: its base with one layer more, under a tag.

    ``pairing`` is one of the ``library``; ``base`` is the image to build on, wherever it lies (without it, the
    one that the lock names); ``lock`` is the lock's file, without it the one beside the pairing. ``output`` is
    ``docker``, ``oci:DIR`` or ``registry:REF``, without it the engine that the base lies in. ``tag`` is another name than
    ``PAIRING:VLLM-LOCK``; ``platform`` is one of those that the lock is of.

    Returns a ``BuildResult``. Raises ``Refused``, with nothing written, where the lock no longer holds on the base,
    where no policy trusts it, and for a tag that names another image; ``UsageError`` for a pairing without a lock.

    >>> vm.build(vm.Library(), "qwen3.5-122b-hybrid", lock="missing.lock")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: pairing qwen3.5-122b-hybrid has no lock: ...
    """
    access = access or Access()
    wanted = library.pairing(pairing)
    locked, beside = find_lock(library, pairing, lock)
    ref = base or locked.lock.base.ref
    tag = tag or locked.tag
    parts = parts_of(locked.lock, ref, platform)
    with on_bases(
        library, wanted, ref, parts, epoch=locked.lock.epoch, beside=beside, access=access
    ) as opened:
        for part, on_platform in zip(parts, opened, strict=True):
            _check_lock(locked, part, on_platform)
        demand_serving(library, wanted, opened, access)
        place = outputs.parse(output, opened[0].base)
        names.parse(tag)
        images, written = build_all(locked, opened, place, tag, platform)
    return BuildResult(tuple(images), tag, place, written, locked.sha256)


def _check_lock(locked: ReadLock, part: PairingLock, opened: OnBase) -> None:
    moved = pairing_lock.moved(part, opened.drafted.lock)
    if moved:
        lines = "".join(f"\n  {one}" for one in moved)
        raise Refused(
            f"the lock {locked.path} no longer holds on {opened.base.reference}; nothing was built"
            f"{lines}",
            hint=f"vllm-mods lock {locked.lock.pairing} --base {opened.base.reference}",
        )
