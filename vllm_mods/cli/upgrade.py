"""``vllm-mods upgrade PAIRING``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import click

from vllm_mods.base.errors import Refused, UsageError, refusing
from vllm_mods.building import outputs, upgrading
from vllm_mods.cli import answers, command_check, manner, options, pairing_arguments
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.build import attached_of, build_all, check_room, documents_of, image_lines
from vllm_mods.cli.lock import looked_at
from vllm_mods.cli.manner import option
from vllm_mods.cli.pairing_arguments import ReadLock
from vllm_mods.formats import pairing, pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.library.catalog import Library
from vllm_mods.report import data


@click.command(name="upgrade")
@options.pairing_name
@option("--to VERSION", "The vLLM to move to [the one that it is on].")
@option(
    "--base REF",
    "The image to build on, wherever it lies [the pairing's, with that version in its tag].",
)
@option("--output WHERE", "As `build` has it [the engine that the base lies in].")
@option("--rollback", "Back to what pairing and lock were before.")
@options.libraries
@manner.json_output
@refusing()
def command(
    name: str, to: str | None, base: str | None, output: str | None, *, rollback: bool
) -> int:
    """Move a pairing to another vLLM: check, lock, serve-check and build, all of it or nothing.

    The pairing's file gets the base and the range of that version, the image a tag of its own; the old
    image stays, and pairing and lock as they were are kept beside them for --rollback. Without --to, a
    base that has another digest by now gets the pairing's layer anew. Nothing is ported: a mod that does
    not fit is a refusal that names the command.
    """
    library = options.own_library()
    _check_writable(library, name)
    path = pairing_arguments.lock_path(library, name, None)
    kept = pairing_arguments.read_lock(library, path, name)
    if rollback:
        if (to, base, output) != (None, None, None):
            raise UsageError(
                "--rollback goes to what was before, and takes neither --to nor --base nor --output",
                hint=f"vllm-mods upgrade {name} --rollback",
            )
        return _roll_back(library, name, kept)
    to = None if to is None else to.removeprefix("v")
    wanted = upgrading.on_release(library.pairing(name), kept.lock, to, base)
    epoch = source_date_epoch()
    with upgrading.naming_ports(name, to), ExitStack() as stack:
        opened = [
            stack.enter_context(
                pairing_arguments.on_base(
                    library,
                    wanted,
                    base or wanted.base,
                    epoch=kept.lock.epoch if epoch is None else epoch,
                    beside=(path,),
                    platform=platform,
                )
            )
            for platform in pairing_lock.by_platform(kept.lock)
        ]
        place = outputs.parse(output, opened[0].base)
        if base is not None:
            wanted = wanted._replace(base=opened[0].drafted.lock.base.ref)
        for one in opened:
            upgrading.check_version(wanted, kept.lock, to, one.tree.version)
            asked = command_check.of_pairing(library, wanted)
            command_check.demand(asked, one.tree, one.planned)
        lock = pairing_lock.joined([one.drafted.lock for one in opened])._replace(
            checkpoint=looked_at(library, wanted), pairing_digest=pairing.digest(wanted)
        )
        file = library.pairing_file(name)
        before = library.read(file) or b""
        after = upgrading.edited(before, file, wanted)
        if after == before and not pairing_lock.moved(kept.lock, lock):
            return _answer(kept.lock, ReadLock(path, kept.data, kept.lock), ())
        now = ReadLock(path, pairing_lock.dump(lock), lock)
        check_room(lock, opened, place, None)
        lookup = stack.enter_context(outputs.looking_up(place, opened[0].base, _tag(now)))
        images = build_all(now, opened)
        beside = os.path.splitext(path)[0]
        ready = outputs.prepare(place, [one[1:] for one in images], _tag(now), lookup)
        documents = documents_of(now, images, ready)
        written = outputs.write(ready, attached_of(documents, ready))
        upgrading.put(
            library,
            name,
            {
                ".toml": after,
                ".lock": now.data,
                **{
                    where.removeprefix(beside): data
                    for one in documents
                    for where, data in one.items()
                },
            },
        )
    said = (written.said, *image_lines(images), f"stays  {_tag(kept)}")
    more = {"image": images[0].built.config_digest, "manifest": written.pushed}
    return _answer(kept.lock, now, said, more=more)


def _check_writable(library: Library, name: str) -> None:
    file = library.pairing_file(name)
    if not library.is_writable(file):
        raise UsageError(
            f"{name} came with vllm-mods, and {file} is a part of the installation: nothing was written",
            hint=f"""make it a pairing of your own:
  mkdir -p mods/pairings
  sed 's/^name = .*/name = "my-{name}"/' {file} >mods/pairings/my-{name}.toml
  vllm-mods lock my-{name} --library mods""",
        )
    if not os.access(os.path.dirname(file), os.W_OK):
        raise Refused(f"{file} cannot be written; nothing was changed", hint=f"ls -l {file}")


def _roll_back(library: Library, name: str, kept: ReadLock) -> int:
    files = upgrading.previous(library, name)
    lock = pairing_lock.parse(files[".lock"], f"{kept.path}{upgrading.PREVIOUS}")
    pairing.parse(files[".toml"], f"{library.pairing_file(name)}{upgrading.PREVIOUS}")
    upgrading.put(library, name, files)
    beside = os.path.splitext(kept.path)[0]
    for start in (
        beside,
        *(f"{beside}.{name.replace('/', '-')}" for name in pairing_lock.by_platform(kept.lock)),
    ):
        for ending in (".cdx.json", ".intoto.json"):  # of the other image
            if not os.path.exists(place := start + ending):
                continue
            os.unlink(place)
            answers.note(f"removed {place}: `vllm-mods build {name}` writes it anew")
    now = ReadLock(kept.path, files[".lock"], lock)
    return _answer(kept.lock, now, (f"stays  {_tag(kept)}",))


def _tag(one: ReadLock) -> str:
    return pairing_lock.tag(one.lock, one.data)


def _answer(
    before: PairingLock, now: ReadLock, said: Sequence[str], *, more: dict[str, Any] | None = None
) -> int:
    """Tell what became of a lock."""
    found = pairing_lock.differences(before, now.lock)
    lock = now.lock
    answer = {
        "pairing": lock.pairing,
        "changed": bool(said),
        "tag": _tag(now),
        "lock": now.path,
        "base": lock.base.ref,
        "vllm": lock.vllm.version,
        "mods": [data.fields(one, "name", "version", "verdict") for one in lock.mods],
        "differences": [one._asdict() for one in found],
        **(more or {}),
    }
    if not said:
        nothing = f"{lock.pairing} is on {lock.base.ref} as it is now: nothing moved"
        return answers.answer(answer, nothing)
    lines = [
        f"{lock.pairing}: vLLM {before.vllm.version} → {lock.vllm.version}, now {_tag(now)} on {lock.base.ref}"
    ]
    lines += [*pairing_arguments.mod_lines(lock), "what moved:"]
    lines += [*(f"  {one}" for one in found), *said]
    return answers.answer(answer, "\n".join(lines))
