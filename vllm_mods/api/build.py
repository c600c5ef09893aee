"""A pairing resolved to hashes on its base, the image of that lock, and another vLLM for both."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.api import on_base
from vllm_mods.api.access import Access
from vllm_mods.api.libraries import check_own_pairing
from vllm_mods.api.model import look_at_model
from vllm_mods.base.errors import refusing, refusing_to_write
from vllm_mods.base.output import write_whole
from vllm_mods.building import outputs, upgrading
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.formats import pairing as pairings, pairing_lock
from vllm_mods.images import names
from vllm_mods.images.open import platforms_of
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.library.writing import replace


class BuildResult(NamedTuple):
    """The ``images`` of a lock, one per platform, under a ``tag`` in the ``output``; ``lock`` is the lock's sha256.

    ``written`` says what was done there.
    """

    images: tuple[on_base.BuiltFor, ...]
    tag: str
    output: outputs.Output
    written: outputs.Written
    lock: str


class Upgraded(NamedTuple):
    """The lock of a pairing ``before`` and ``now``, and the ``images`` that were built and ``written``, if any."""

    before: on_base.ReadLock
    now: on_base.ReadLock
    images: tuple[on_base.BuiltFor, ...] = ()
    written: outputs.Written | None = None

    @property
    def differences(self) -> tuple[pairing_lock.LockDifference, ...]:
        """What moved in the lock."""
        return tuple(pairing_lock.differences(self.before.lock, self.now.lock))


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
    model_folder: str | None = None,
    device_memory: str | None = None,
    access: Access | None = None,
) -> on_base.ReadLock:
    """Resolve a pairing of a library to hashes on its base, and write them down.

    ``base`` is the image to build on, wherever it lies (without it, the pairing's own); ``platforms`` are
    those of an index such as ``linux/arm64``, without them all; ``in_image`` is the folder that holds
    ``vllm/``, where there are several. ``output`` is the file of the lock, without it ``NAME.lock`` beside the
    pairing. ``source_date_epoch`` (seconds, else 0) is the time of everything that is built. ``model_folder`` is where the
    model lies, without it where the pairing says; ``device_memory`` (``96GiB``) that of each GPU which is to serve it,
    without it this machine's.

    Returns it as a ``ReadLock``. Raises ``Refused``, with nothing written, for a mod that does not fit, a command that the
    vLLM in the base would not take, a model that the mods are not for or that the memory is too small for, and what
    no policy trusts; ``UsageError`` for a base that there is not.

    >>> vm.lock(vm.Library("library"), "served", base="oci:missing")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: ...
    """
    access = access or Access()
    wanted, path = _named(library, pairing, output)
    model = _look_at_model(library, wanted, access, folder=model_folder, memory=device_memory)
    ref = base or wanted.base
    places = tuple(dict.fromkeys(platforms)) or _platforms(ref, access)
    epoch = source_date_epoch or 0
    with on_base.on_bases(
        library, wanted, ref, places, epoch=epoch, in_image=in_image, access=access
    ) as opened:
        on_base.demand_serving(library, wanted, opened, access, model)
        whole = on_base.joined_lock(opened, model)
    data = pairing_lock.dump(whole)
    with refusing_to_write(path):
        write_whole(path, data)
    access.note(f"wrote {path}")
    return on_base.ReadLock(path, data, whole)


@refusing()
def moved_since(
    library: Library,
    pairing: str,
    *,
    base: str | None = None,
    platform: str | None = None,
    output: str | None = None,
    source_date_epoch: int | None = None,
    model_folder: str | None = None,
    device_memory: str | None = None,
    access: Access,
) -> tuple[pairing_lock.LockDifference, ...]:
    """Return what moved since the lock of a pairing was made; nothing is written. Arguments are those of ``lock``."""
    wanted, path = _named(library, pairing, output)
    model = _look_at_model(library, wanted, access, folder=model_folder, memory=device_memory)
    before = on_base.read_lock(library, path, pairing)
    ref = base or before.lock.base.ref
    parts = on_base.parts_of(before.lock, ref, platform)
    epoch = before.lock.epoch if source_date_epoch is None else source_date_epoch
    with on_base.on_bases(library, wanted, ref, parts, epoch=epoch, access=access) as opened:
        now = on_base.joined_lock(opened, model)
    return tuple(pairing_lock.moved(pairing_lock.joined(parts), now))


def _named(library: Library, name: str, output: str | None) -> tuple[pairings.Pairing, str]:
    """Read a pairing that has to be trusted, and return where its lock lies."""
    wanted = library.pairing(name)
    path = on_base.lock_path(library, name, output)
    trust.demand_pairing(library, wanted.name)  # before anybody asks for its base and its model
    return wanted, path


def _platforms(ref: str, access: Access) -> Sequence[str | None]:
    """Return the platforms to lock for where nobody has named one: all of an index."""
    platforms = platforms_of(ref)
    if len(platforms) > 1:
        access.note(f"{ref}: the lock is for {' and '.join(platforms)}; --platform chooses one")
    return platforms or (None,)


def _look_at_model(
    library: Library,
    wanted: pairings.Pairing,
    access: Access,
    *,
    folder: str | None = None,
    memory: str | None = None,
) -> Checkpoint | None:
    """Look at a pairing's model, None where nobody can; a mod that it lacks is noted. Raises as ``look_at_model``."""
    mods = library.select(library.mods_of(wanted))
    checkpoint = look_at_model(wanted, mods, folder=folder, memory=memory, note=access.note)
    if checkpoint is None:
        return None
    present = {mod.name for mod in mods}
    for name in library.names():
        fit = fitting.of_mod(library.load(name), checkpoint)
        if fit.fails and fit.name not in present:
            access.note(f"the pairing lacks {fit.name}, which this model needs: {fit.fails}")
    return checkpoint


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
    model_folder: str | None = None,
    device_memory: str | None = None,
    access: Access | None = None,
) -> BuildResult:
    """Build the image of a pairing's lock: its base with one layer more, under a tag.

    ``pairing`` is one of the ``library``; ``base`` is the image to build on, wherever it lies (without it, the
    one that the lock names); ``lock`` is the lock's file, without it the one beside the pairing. ``output`` is
    ``docker``, ``oci:DIR`` or ``registry:REF``, without it the engine that the base lies in. ``tag`` is another name than
    ``PAIRING:VLLM-LOCK``; ``platform`` is one of those that the lock is of. ``model_folder`` and ``device_memory`` are
    those of ``lock``; no Hub is asked.

    Returns a ``BuildResult``. Raises ``Refused``, with nothing written, where the lock no longer holds on the base,
    where no policy trusts it, and for a tag that names another image; ``UsageError`` for a pairing without a lock.

    >>> vm.build(vm.Library(), "qwen3.5-122b-hybrid", lock="missing.lock")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: pairing qwen3.5-122b-hybrid has no lock: ...
    """
    access = access or Access()
    wanted = library.pairing(pairing)
    locked, beside = on_base.find_lock(library, pairing, lock)
    ref = base or locked.lock.base.ref
    tag = tag or locked.tag
    parts = on_base.parts_of(locked.lock, ref, platform)
    with on_base.on_bases(
        library, wanted, ref, parts, epoch=locked.lock.epoch, beside=beside, access=access
    ) as opened:
        on_base.demand_locked(locked, parts, opened)
        mods = library.select(library.mods_of(wanted))  # what nobody knows, `lock` has said
        model = look_at_model(wanted, mods, folder=model_folder, memory=device_memory, here=True)
        on_base.demand_serving(library, wanted, opened, access, model)
        place = outputs.parse(output, opened[0].tree.base)
        names.parse(tag)
        images, written = on_base.build_all(locked, opened, place, tag, platform)
    return BuildResult(tuple(images), tag, place, written, locked.sha256)


@refusing()
def upgrade(
    library: Library,
    pairing: str,
    *,
    to: str | None = None,
    base: str | None = None,
    output: str | None = None,
    source_date_epoch: int | None = None,
    access: Access,
) -> Upgraded:
    """Move a pairing of one's own library to another vLLM: check, lock, serve-check and build, all of it or nothing.

    ``to`` is a version; without it, a base that has another digest by now gets the pairing's layer anew. ``base`` is
    the image to build on, without it the pairing's with that version in its tag; ``output`` is that of ``build``.
    The pairing's file and its lock change in one step, behind the image: who is killed before that leaves at most one
    that nothing names yet. The old image stays. Raises ``Refused`` with nothing changed where a mod does not fit, with
    the commands that port it.
    """
    check_own_pairing(library, pairing)
    before = on_base.read_lock(library, on_base.lock_path(library, pairing, None), pairing)
    to = None if to is None else to.removeprefix("v")
    wanted = upgrading.move_to_release(library.pairing(pairing), before.lock, to, base)
    epoch = before.lock.epoch if source_date_epoch is None else source_date_epoch
    ref, platforms = base or wanted.base, pairing_lock.by_platform(before.lock)
    with (
        upgrading.naming_ports(pairing, to),
        on_base.on_bases(
            library, wanted, ref, platforms, epoch=epoch, beside=(before.path,), access=access
        ) as opened,
    ):
        place = outputs.parse(output, opened[0].tree.base)
        if base is not None:
            wanted = wanted._replace(base=opened[0].drafted.lock.base.ref)
        for image in opened:
            upgrading.check_version(wanted._replace(base=ref), before.lock, to, image.tree.version)
        model = _look_at_model(library, wanted, access)
        on_base.demand_serving(library, wanted, opened, access, model)
        lock = on_base.joined_lock(opened, model)._replace(pairing_digest=pairings.digest(wanted))
        file = library.pairing_file(pairing)
        text = library.read(file) or b""
        edited = upgrading.edit_pairing(text, file, wanted)
        if edited == text and not pairing_lock.moved(before.lock, lock):
            return Upgraded(before, before)
        now = on_base.ReadLock(before.path, pairing_lock.dump(lock), lock)
        images, written = on_base.build_all(now, opened, place, now.tag, None)
        root = os.path.dirname(os.path.dirname(file))
        both = {file: edited, now.path: now.data}
        replace(root, {os.path.relpath(path, root): data for path, data in both.items()})
    return Upgraded(before, now, tuple(images), written)
