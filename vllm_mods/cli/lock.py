"""``vllm-mods lock``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.base.errors import Unreachable, UsageError, refusing
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.sources import is_hub_id, open_checkpoint
from vllm_mods.cli import answers, command_check, manner, options, pairing_arguments
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import LockDifference, LockedModel, PairingLock
from vllm_mods.images.open import platforms_of
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.report.data import fields


@click.command(name="lock")
@click.argument(
    "names",
    nargs=-1,
    metavar="PAIRING | diff A B",
    shell_complete=options.complete_pairings,
)
@options.base
@option(
    "--platform OS/ARCH,…",
    "Which images of an index, such as linux/arm64 [all of them, in one lock].",
)
@options.target_in_image
@option("--output FILE", "Where the lock lies [pairings/NAME.lock beside the pairing].")
@option("--check", "Say what moved since the lock was made; write nothing.")
@options.libraries
@manner.json_output
@refusing()
def command(
    names: tuple[str, ...],
    base: str | None,
    output: str | None,
    *,
    platform: str | None,
    in_image: str | None,
    check: bool,
) -> int:
    """Resolve a pairing to hashes, and write them down.

    What is built follows from the base and this lock alone. With --check nothing is written, and
    the exit code is 1 if anything moved. `lock diff A B` compares two locks, files or pairings.
    Nothing is locked that vllm-mods.toml does not trust. The time of everything that is built is SOURCE_DATE_EPOCH, else 1970.
    """
    library = options.own_library()
    if names[:1] == ("diff",) and len(names) == 3:
        return _diff(library, names[1], names[2])
    if len(names) != 1:
        raise UsageError(
            f"one pairing is locked at a time, and {len(names)} are named",
            hint="vllm-mods lock PAIRING, or vllm-mods lock diff A B",
        )
    wanted = library.pairing(names[0])
    path = pairing_arguments.lock_path(library, names[0], output)
    trust.demand_pairing(library, wanted.name)  # before anybody asks for its base and its model
    epoch = source_date_epoch()
    looked = looked_at(library, wanted)
    locks = []
    if check:
        kept = pairing_arguments.read_lock(library, path, names[0])
        ref = base or kept.lock.base.ref
        parts = pairing_arguments.parts_of(kept.lock, ref, platform)
        for part in parts:
            epoch = part.epoch if epoch is None else epoch
            with pairing_arguments.on_base(
                library, wanted, ref, epoch=epoch, locked=part
            ) as opened:
                locks.append(opened.drafted.lock._replace(checkpoint=looked))
        moved = pairing_lock.moved(pairing_lock.joined(parts), pairing_lock.joined(locks))
        return _answer(moved, f"{path} holds")
    ref = base or wanted.base
    for one in platform.split(",") if platform else _platforms(ref):
        with pairing_arguments.on_base(
            library, wanted, ref, epoch=epoch or 0, platform=one, in_image=in_image
        ) as opened:
            asked = command_check.of_pairing(library, wanted)
            command_check.demand(asked, opened.tree, opened.planned)
            locks.append(opened.drafted.lock._replace(checkpoint=looked))
    lock = pairing_lock.joined(locks)
    data = pairing_lock.dump(lock)
    pairing_arguments.write_file(path, data)
    named = "" if output is None else f" --lock {shlex.quote(output)}"
    return answers.answer(
        {"lock": path, "sha256": pairing_lock.digest(data), **_summary(lock, data)},
        _text(lock, data),
        next_step=f"vllm-mods build {wanted.name}{named}",
    )


def _platforms(ref: str) -> Sequence[str | None]:
    """Return the platforms to lock for where nobody has named one: all of an index."""
    found = platforms_of(ref)
    if len(found) > 1:
        answers.note(f"{ref}: locked for {' and '.join(found)} (--platform takes some of them)")
    return found or (None,)


def looked_at(library: Library, wanted: Pairing) -> LockedModel | None:
    """Look at a pairing's model, None where it is not here and the Hub cannot be asked for it.

    Raises ``Refused`` for one that the pairing's mods are not for.
    """
    if not os.path.isdir(wanted.model) and not is_hub_id(wanted.model):
        answers.note(
            f"{wanted.model} is not here, so that nobody looked whether its mods are for it"
        )
        return None
    try:
        one = open_checkpoint(wanted.model, wanted.revision)
    except Unreachable as error:
        answers.note(f"nobody looked whether the mods are for {wanted.model}: {error.message}")
        return None
    mods = library.select(library.mods_of(wanted))
    fitting.demand(mods, one, wanted.name)
    there = {mod.name for mod in mods}
    for name in library.names():
        fit = fitting.of_mod(library.load(name), one)
        if fit.fails and fit.name not in there:
            answers.note(f"without {name}, vLLM fails with this model: {fit.fails}")
    return LockedModel(one.commit, one.config_sha256, one.index_sha256)


def _diff(library: Library, one: str, other: str) -> int:
    first, second = (_read(library, name) for name in (one, other))
    return _answer(pairing_lock.differences(first, second), "no difference")


def _read(library: Library, name: str) -> PairingLock:
    """Read a lock by its file, or by the pairing that it lies beside."""
    path = name if os.path.exists(name) else pairing_arguments.lock_path(library, name, None)
    try:
        with open(path, "rb") as file:
            return pairing_lock.parse(file.read(), path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint=f"vllm-mods lock {name}") from error


def _answer(found: Sequence[LockDifference], none: str) -> int:
    answer = {"ok": not found, "differences": [one._asdict() for one in found]}
    return answers.answer(answer, "\n".join(map(str, found)) or none, ok=not found)


def _summary(lock: PairingLock, data: bytes) -> dict[str, Any]:
    return {
        "pairing": lock.pairing,
        "tag": pairing_lock.tag(lock, data),
        "base": lock.base.config,
        "platform": lock.base.platform,
        "platforms": list(pairing_lock.by_platform(lock)),
        "vllm": lock.vllm.version,
        "mods": [fields(mod, "name", "version") for mod in lock.mods],
    }


def _text(lock: PairingLock, data: bytes) -> str:
    lines = []
    for one in pairing_lock.by_platform(lock).values():
        base = f"{one.base.ref} ({one.base.config[:19]}…, {one.base.platform})"
        lines.append(f"{one.pairing} on {base}, vLLM {one.vllm.version}")
        lines += pairing_arguments.mod_lines(one)
        lines += [f"  {wheel.filename}" for wheel in one.wheels]
    return "\n".join((*lines, f"builds {pairing_lock.tag(lock, data)}"))
