"""``vllm-mods lock``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api.lock import differences, lock, moved_since
from vllm_mods.api.on_base import ReadLock, lock_path
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import LockDifference, PairingLock
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
def command(
    names: tuple[str, ...],
    base: str | None,
    output: str | None,
    libraries: LibraryArguments,
    *,
    platform: str | None,
    in_image: str | None,
    check: bool,
    as_json: bool,
) -> int:
    """Resolve a pairing to hashes, and write them down.

    What is built follows from the base and this lock alone. With --check nothing is written, and
    the exit code is 1 if anything moved. `lock diff A B` compares two locks, files or pairings.
    Nothing is locked that vllm-mods.toml does not trust. The time of everything that is built is SOURCE_DATE_EPOCH, else 1970.
    """
    library = libraries.open_own()
    if names[:1] == ("diff",) and len(names) == 3:
        return _answer(differences(library, *names[1:]), "no difference", as_json=as_json)
    if len(names) != 1:
        raise UsageError(
            f"one pairing is locked at a time, and {len(names)} are named",
            hint="vllm-mods lock PAIRING, or vllm-mods lock diff A B",
        )
    access, epoch = options.open_access(), source_date_epoch()
    if check:
        moved = moved_since(
            library,
            names[0],
            base=base,
            platform=platform,
            output=output,
            source_date_epoch=epoch,
            access=access,
        )
        path = lock_path(library, names[0], output)
        return _answer(moved, f"{path} holds", as_json=as_json)
    result = lock(
        library,
        names[0],
        base=base,
        platforms=platform.split(",") if platform else (),
        in_image=in_image,
        output=output,
        source_date_epoch=epoch,
        access=access,
    )
    named = "" if output is None else f" --lock {shlex.quote(output)}"
    return answers.answer(
        _data(result),
        _text(result),
        as_json=as_json,
        next_step=f"vllm-mods build {result.lock.pairing}{named}",
    )


def _answer(moved: Sequence[LockDifference], none: str, *, as_json: bool) -> int:
    answer = {"ok": not moved, "differences": [one._asdict() for one in moved]}
    text = "\n".join(map(str, moved)) or none
    return answers.answer(answer, text, as_json=as_json, ok=not moved)


def _data(result: ReadLock) -> dict[str, Any]:
    lock = result.lock
    return {
        "lock": result.path,
        "sha256": result.sha256,
        "pairing": lock.pairing,
        "tag": result.tag,
        "base": lock.base.config,
        "platform": lock.base.platform,
        "platforms": list(pairing_lock.by_platform(lock)),
        "vllm": lock.vllm.version,
        "mods": [fields(mod, "name", "version") for mod in lock.mods],
    }


def _text(result: ReadLock) -> str:
    lines = []
    for part in pairing_lock.by_platform(result.lock).values():
        base = f"{part.base.ref} ({part.base.config[:19]}…, {part.base.platform})"
        lines.append(f"{part.pairing} on {base}, vLLM {part.vllm.version}")
        lines += mod_lines(part)
        lines += [f"  {wheel.filename}" for wheel in part.wheels]
    return "\n".join((*lines, f"builds {result.tag}"))


def mod_lines(lock: PairingLock) -> list[str]:
    """Return a line for each mod of a lock."""
    return [
        f"  {mod.name} {mod.version}  {mod.verdict} (variant {mod.variant})" for mod in lock.mods
    ]
