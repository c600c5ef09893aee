"""A pairing resolved to hashes, and what moved since."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from collections.abc import Sequence

from vllm_mods.api.access import Access
from vllm_mods.api.on_base import (
    ReadLock,
    demand_serving,
    joined_lock,
    lock_path,
    on_bases,
    parts_of,
    read_lock,
)
from vllm_mods.base.errors import Unreachable, UsageError, refusing
from vllm_mods.base.output import write_whole
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.sources import is_hub_id, open_checkpoint
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import LockDifference, LockedModel
from vllm_mods.images.open import platforms_of
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library


@refusing()
def lock(
    library: Library,
    pairing: str,
    *,
    base: str | None = None,
    platforms: Sequence[str] = (),
    in_image: str | None = None,
    output: str | None = None,
    source_date_epoch: int | None = None,
    access: Access | None = None,
) -> ReadLock:
    """Resolve a pairing of a library to hashes on its base, and write them down.

    ``base`` is the image to build on, wherever it lies (without it, the pairing's own); ``platforms`` are
    those of an index such as ``linux/arm64``, without them all; ``in_image`` is the folder that holds
    ``vllm/``, where there are several. ``output`` is the file of the lock, without it ``NAME.lock`` beside the
    pairing. ``source_date_epoch`` (seconds, else 0) is the time of everything that is built.

    Returns it as a ``ReadLock``. Raises ``Refused``, with nothing written, for a mod that does not fit, a command that the
    vLLM in the base would not take, a model that the mods are not for, and what no policy trusts; ``UsageError``
    for a base that there is not.

    >>> vm.lock(vm.Library("library"), "served", base="oci:missing")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: ...
    """
    access = access or Access()
    wanted, path = _named(library, pairing, output)
    model = look_at_model(library, wanted, access)
    ref = base or wanted.base
    places = platforms or _platforms(ref, access)
    epoch = source_date_epoch or 0
    with on_bases(
        library, wanted, ref, places, epoch=epoch, in_image=in_image, access=access
    ) as opened:
        demand_serving(library, wanted, opened, access)
        whole = joined_lock(opened)._replace(checkpoint=model)
    data = pairing_lock.dump(whole)
    try:
        write_whole(path, data)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", hint="--output FILE names another place"
        ) from error
    access.note(f"wrote {path}")
    return ReadLock(path, data, whole)


@refusing()
def moved_since(
    library: Library,
    pairing: str,
    *,
    base: str | None = None,
    platform: str | None = None,
    output: str | None = None,
    source_date_epoch: int | None = None,
    access: Access | None = None,
) -> tuple[LockDifference, ...]:
    """Return what moved since the lock of a pairing was made; nothing is written. Arguments are those of ``lock``."""
    access = access or Access()
    wanted, path = _named(library, pairing, output)
    model = look_at_model(library, wanted, access)
    before = read_lock(library, path, pairing)
    ref = base or before.lock.base.ref
    parts = parts_of(before.lock, ref, platform)
    epoch = before.lock.epoch if source_date_epoch is None else source_date_epoch
    with on_bases(library, wanted, ref, parts, epoch=epoch, access=access) as opened:
        now = joined_lock(opened)._replace(checkpoint=model)
    return tuple(pairing_lock.moved(pairing_lock.joined(parts), now))


def _named(library: Library, name: str, output: str | None) -> tuple[Pairing, str]:
    """Read a pairing that has to be trusted, and return where its lock lies."""
    wanted = library.pairing(name)
    path = lock_path(library, name, output)
    trust.demand_pairing(library, wanted.name)  # before anybody asks for its base and its model
    return wanted, path


def _platforms(ref: str, access: Access) -> Sequence[str | None]:
    """Return the platforms to lock for where nobody has named one: all of an index."""
    platforms = platforms_of(ref)
    if len(platforms) > 1:
        access.note(f"{ref}: locked for {' and '.join(platforms)} (--platform takes some of them)")
    return platforms or (None,)


def look_at_model(library: Library, wanted: Pairing, access: Access) -> LockedModel | None:
    """Look at a pairing's model, None where it is not here and the Hub cannot be asked for it.

    Raises ``Refused`` for one that the pairing's mods are not for.
    """
    if not os.path.isdir(wanted.model) and not is_hub_id(wanted.model):
        access.note(
            f"{wanted.model} is not here, so that nobody looked whether its mods are for it"
        )
        return None
    try:
        checkpoint = open_checkpoint(wanted.model, wanted.revision)
    except Unreachable as error:
        access.note(f"nobody looked whether the mods are for {wanted.model}: {error.message}")
        return None
    mods = library.select(library.mods_of(wanted))
    fitting.demand(mods, checkpoint, wanted.name)
    present = {mod.name for mod in mods}
    for name in library.names():
        fit = fitting.of_mod(library.load(name), checkpoint)
        if fit.fails and fit.name not in present:
            access.note(f"without {fit.name}, vLLM fails with this model: {fit.fails}")
    return LockedModel(checkpoint.commit, checkpoint.config_sha256, checkpoint.index_sha256)
