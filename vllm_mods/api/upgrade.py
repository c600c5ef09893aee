"""A pairing moved to another vLLM: checked, locked and built, all of it or nothing."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from typing import NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import check_own_pairing
from vllm_mods.api.lock import look_at_model
from vllm_mods.api.on_base import (
    BuiltFor,
    ReadLock,
    build_all,
    demand_serving,
    joined_lock,
    lock_path,
    on_bases,
    read_lock,
)
from vllm_mods.base.errors import refusing
from vllm_mods.building import outputs, upgrading
from vllm_mods.building.outputs import Written
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import LockDifference
from vllm_mods.library.catalog import Library
from vllm_mods.library.writing import replace


class Upgraded(NamedTuple):
    """The lock of a pairing ``before`` and ``now``, and the ``images`` that were built and ``written``, if any."""

    before: ReadLock
    now: ReadLock
    images: tuple[BuiltFor, ...] = ()
    written: Written | None = None

    @property
    def changed(self) -> bool:
        """Whether anything moved."""
        return self.written is not None

    @property
    def differences(self) -> tuple[LockDifference, ...]:
        """What moved in the lock."""
        return tuple(pairing_lock.differences(self.before.lock, self.now.lock))


@refusing()
def upgrade(
    library: Library,
    pairing: str,
    *,
    to: str | None = None,
    base: str | None = None,
    output: str | None = None,
    source_date_epoch: int | None = None,
    access: Access | None = None,
) -> Upgraded:
    """Move a pairing of one's own library to another vLLM: check, lock, serve-check and build, all of it or nothing.

    ``to`` is a version; without it, a base that has another digest by now gets the pairing's layer anew. ``base`` is
    the image to build on, without it the pairing's with that version in its tag; ``output`` is that of ``build``.
    The pairing's file and its lock change in one step, behind the image: who is killed before that leaves at most one
    that nothing names yet. The old image stays. Raises ``Refused`` with nothing changed where a mod does not fit, with
    the commands that port it.
    """
    access = access or Access()
    check_own_pairing(library, pairing)
    before = read_lock(library, lock_path(library, pairing, None), pairing)
    to = None if to is None else to.removeprefix("v")
    wanted = upgrading.move_to_release(library.pairing(pairing), before.lock, to, base)
    epoch = before.lock.epoch if source_date_epoch is None else source_date_epoch
    ref, platforms = base or wanted.base, pairing_lock.by_platform(before.lock)
    with (
        upgrading.naming_ports(pairing, to),
        on_bases(
            library, wanted, ref, platforms, epoch=epoch, beside=(before.path,), access=access
        ) as opened,
    ):
        place = outputs.parse(output, opened[0].base)
        if base is not None:
            wanted = wanted._replace(base=opened[0].drafted.lock.base.ref)
        for on_platform in opened:
            upgrading.check_version(wanted, before.lock, to, on_platform.tree.version)
        demand_serving(library, wanted, opened, access)
        lock = joined_lock(opened)._replace(
            checkpoint=look_at_model(library, wanted, access),
            pairing_digest=pairings.digest(wanted),
        )
        file = library.pairing_file(pairing)
        text = library.read(file) or b""
        edited = upgrading.edit_pairing(text, file, wanted)
        if edited == text and not pairing_lock.moved(before.lock, lock):
            return Upgraded(before, before)
        now = ReadLock(before.path, pairing_lock.dump(lock), lock)
        images, written = build_all(now, opened, place, now.tag, None)
        root = os.path.dirname(os.path.dirname(file))
        both = {file: edited, now.path: now.data}
        replace(root, {os.path.relpath(path, root): data for path, data in both.items()})
    return Upgraded(before, now, tuple(images), written)
