"""``vllm-mods build``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from vllm_mods.base.cache import Cache, cache_folder
from vllm_mods.base.errors import Refused, UsageError, refusing
from vllm_mods.base.output import write_whole
from vllm_mods.building import archive, building, documents, outputs
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import Output, Ready
from vllm_mods.building.reproduction import build_again
from vllm_mods.cli import answers, manner, options, pairing_arguments
from vllm_mods.cli.manner import option
from vllm_mods.cli.pairing_arguments import OnBase, ReadLock
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.formats.receipt import TOOL
from vllm_mods.images import names
from vllm_mods.images.model import Base
from vllm_mods.images.oci import platform_of
from vllm_mods.library.catalog import Library
from vllm_mods.running import engine

if TYPE_CHECKING:
    from vllm_mods.building.outputs.registry import Attached
    from vllm_mods.building.signing import Signer


class BuiltFor(NamedTuple):
    """An image, what it is built on, and the lock as it is for its platform."""

    lock: PairingLock
    built: BuiltImage
    base: Base


@click.command(name="build")
@options.pairing_name
@options.base
@option("--lock FILE", "The lock [NAME.lock beside the pairing].", "lock_file")
@option(
    "--output WHERE",
    "docker, oci:DIR or registry:REF [the engine that the base lies in].",
)
@option("--tag T", "Another name than PAIRING:VLLM-LOCK.")
@option("--documents DIR", "Where SBOM and provenance go [beside the lock].")
@option(
    "--sign KEY",
    "Sign what is pushed: a private key of OpenSSH's, or one of cosign's (file or URI).",
    "key",
)
@option("--verify", "Build twice more under other conditions, and compare first.")
@option(
    "--platform OS/ARCH",
    "One of those that the lock is of [all of them, where the base is an index].",
)
@click.option("--afresh", metavar="FILE", hidden=True)  # for the builds of --verify
@options.libraries
@manner.json_output
@refusing()
def command(
    name: str,
    base: str | None,
    lock_file: str | None,
    output: str | None,
    *,
    tag: str | None,
    documents: str | None,
    key: str | None,
    platform: str | None,
    verify: bool,
    afresh: str | None,
) -> int:
    """Build the image of a pairing's lock.

    The base gets one layer more: what `apply` would write into its vLLM, and the lock. Only the
    files that the mods touch are read out of the base, and nothing of it is copied that is there
    already. Nothing is built that vllm-mods.toml does not trust. A tag that names another image is not moved.
    """
    library = options.open_library()
    wanted = library.pairing(name)
    path = pairing_arguments.lock_path(library, name, lock_file)
    kept = pairing_arguments.read_lock(library, path, name)
    beside = () if lock_file is not None else pairing_arguments.in_library(library, name, path)
    ref = base or kept.lock.base.ref
    named = tag
    tag = tag or pairing_lock.tag(kept.lock, kept.data)
    with ExitStack() as stack:
        parts = pairing_arguments.parts_of(kept.lock, ref, platform)
        opened = [
            stack.enter_context(
                pairing_arguments.on_base(
                    library,
                    wanted,
                    ref,
                    epoch=part.epoch,
                    locked=part,
                    afresh=afresh is not None,
                    beside=beside,
                )
            )
            for part in parts
        ]
        for part, one in zip(parts, opened, strict=True):
            _check(kept, part, one)
            held = (TOOL, pairing_lock.digest(kept.data), part.base.platform)
            _demand_command(library, wanted, one, () if afresh else held)
        if afresh is not None:
            (image,) = build_all(kept, opened)
            write_whole(afresh, archive.thin(image.built, tag))
            return answers.answer(_digests(image.built), None)
        place = outputs.parse(output, opened[0].base)
        names.parse(tag)
        check_room(kept.lock, opened, place, platform)
        signer = None if key is None else _signer(key, place)
        asked = stack.enter_context(outputs.looking_up(place, opened[0].base, tag))
        images = build_all(kept, opened)
        again = ["build", name, "--base", _absolute(ref), "--lock", kept.path]
        for folder in manner.given("libraries"):
            again += ["--library", os.path.abspath(folder)]
        for image in images if verify else ():
            made = archive.thin(image.built, pairing_lock.tag(kept.lock, kept.data))
            build_again([*again, "--platform", image.lock.base.platform], made)
        ready = outputs.prepare(place, [image[1:] for image in images], tag, asked)
        files = documents_of(kept, images, ready, documents)
        every = {path: data for one in files for path, data in one.items()}
        with pairing_arguments.writing(every, "--documents DIR names another folder"):
            written = outputs.write(ready, attached_of(files, ready, signer))
    answer: dict[str, Any] = {
        **_digests(images[0].built),
        **({"manifest": written.pushed} if written.pushed else {}),
        "lock": pairing_lock.digest(kept.data),
        "tag": tag,
        "output": output or place.kind,
        "verified": verify,
    }
    if len(images) > 1:
        answer["platforms"] = {one.lock.base.platform: _digests(one.built) for one in images}
    lines = [written.said, *image_lines(images)]
    if verify:
        lines.append("built three times under different conditions: the same each time")
    next_step = None
    if place.kind in engine.PROGRAMS:
        given = (("--lock", lock_file), ("--image", named))
        words = [word for option, value in given if value for word in (option, value)]
        next_step = shlex.join(["vllm-mods", "run", name, *words])
    return answers.answer(answer, "\n".join(lines), next_step=next_step)


def build_all(kept: ReadLock, opened: Sequence[OnBase]) -> list[BuiltFor]:
    """Build the image of a lock for each platform whose base is open."""
    parts = pairing_lock.by_platform(kept.lock)
    found = []
    for one in opened:
        part = parts[one.drafted.lock.base.platform]
        built = building.build(one.base, one.drafted._replace(lock=part), kept.data)
        found.append(BuiltFor(part, built, one.base))
    return found


def _digests(image: BuiltImage) -> dict[str, str | None]:
    return {
        "image": image.config_digest,
        "manifest": image.manifest_digest,
        "layer": image.layer_digest,
    }


def image_lines(images: Sequence[BuiltFor]) -> list[str]:
    """Say which images there are, and of several for what."""
    ends = [f"  {one.lock.base.platform}" if len(images) > 1 else "" for one in images]
    ids = (one.built.config_digest for one in images)
    return [f"image  {image}{end}" for image, end in zip(ids, ends, strict=True)]


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


def _demand_command(
    library: Library, wanted: Pairing, opened: OnBase, key: tuple[str, ...]
) -> None:
    """Hold the command against the base; what held for a lock holds, since the lock decides all of it."""
    cache = Cache(cache_folder(os.environ), note=answers.note)
    if key and cache.lookup("commands-taken", *key) is not None:
        return
    from vllm_mods.cli import command_check  # noqa: PLC0415  (an eighth of the time of a build)

    asked = command_check.of_pairing(library, wanted)
    if command_check.demand(asked, opened.tree, opened.planned) and key:
        cache.record("commands-taken", *key, data=b"")


def _check(kept: ReadLock, part: PairingLock, opened: OnBase) -> None:
    moved = pairing_lock.moved(part, opened.drafted.lock)
    if moved:
        lines = "".join(f"\n  {one}" for one in moved)
        raise Refused(
            f"the lock {kept.path} no longer holds on {opened.base.reference}; nothing was built"
            f"{lines}",
            hint=f"vllm-mods lock {kept.lock.pairing} --base {opened.base.reference}",
        )


def documents_of(
    kept: ReadLock, images: Sequence[BuiltFor], ready: Sequence[Ready], folder: str | None = None
) -> list[dict[str, bytes]]:
    """Return what lies beside each image, by where it goes: bill of materials and statement.

    Of several images, each has its platform in the name.
    """
    beside = os.path.splitext(kept.path)[0]
    if folder is not None:
        beside = os.path.join(folder, os.path.basename(beside))
    found = []
    for image, one in zip(images, ready, strict=True):
        platform = image.lock.base.platform.replace("/", "-")
        name = f"{beside}.{platform}" if len(images) > 1 else beside
        given = image.lock, kept.data, one.subject
        bill, statement = documents.bill_of_materials(*given), documents.provenance(*given)
        found.append({f"{name}.cdx.json": bill, f"{name}.intoto.json": statement})
    return found


def attached_of(
    files: Sequence[Mapping[str, bytes]], ready: Sequence[Ready], signer: Signer | None = None
) -> list[Attached]:
    """Return what is attached in a registry to each image and, last, to an index of several."""
    push = ready[0].push
    if push is None:
        return []
    from vllm_mods.building import signing  # noqa: PLC0415  (only registries have use for it)

    pairs = [tuple(one.values()) for one in files]
    found = [signing.attached(statement, bill, signer) for bill, statement in pairs]
    if len(pairs) > 1:
        whole = documents.of_index([statement for _, statement in pairs], push.tagged.digest)
        found.append(signing.attached(whole, None, signer))
    return found


def _signer(key: str, place: Output) -> Signer:
    if place.kind != outputs.REGISTRY:
        raise UsageError(
            "--sign is for an image in a registry: the signature is attached to it there",
            hint="--output registry:HOST/NAME",
        )
    from vllm_mods.building import signing  # noqa: PLC0415

    return signing.signer(key)


def _absolute(ref: str) -> str:
    """Return a reference to a file that holds in another folder too."""
    kind, colon, place = ref.partition(":")
    if colon and kind in {"oci", "oci-archive", "docker-archive", "archive"}:
        return f"{kind}:{os.path.abspath(place)}"
    return os.path.abspath(ref) if os.path.exists(ref) else ref
