"""``vllm-mods build``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from vllm_mods.api.apply import refusing
from vllm_mods.base.errors import EXIT_OK, Refused, UsageError
from vllm_mods.build import archive, building, documents, outputs
from vllm_mods.build.outputs import Output, Ready
from vllm_mods.build.reproduction import build_again
from vllm_mods.cli import command_check, options, pairing_arguments
from vllm_mods.cli.lock import describe
from vllm_mods.cli.pairing_arguments import OnBase, ReadLock
from vllm_mods.formats import pairing_lock
from vllm_mods.images import names

if TYPE_CHECKING:
    from vllm_mods.build.outputs.registry import Attached
    from vllm_mods.build.signing import Signer


@click.command(name="build")
@click.argument("name", metavar="PAIRING", shell_complete=options.complete_pairings)
@options.base
@click.option(
    "--lock", "lock_file", metavar="FILE", help="The lock [NAME.lock beside the pairing]."
)
@click.option(
    "--output",
    metavar="WHERE",
    help="docker, oci:DIR, oci-archive:FILE, docker-archive:FILE, registry:REF, dockerfile:DIR or "
    "thin:FILE [the engine that the base lies in].",
)
@click.option("--tag", metavar="T", help="Another name than PAIRING:VLLM-LOCK.")
@click.option("--documents", metavar="DIR", help="Where SBOM and provenance go [beside the lock].")
@click.option(
    "--sign",
    "key",
    metavar="KEY",
    help="Sign what is pushed: a private key of OpenSSH's, or one of cosign's (file or URI).",
)
@click.option(
    "--verify", is_flag=True, help="Build twice more under other conditions, and compare first."
)
@click.option("--afresh", is_flag=True, hidden=True)  # for the builds of --verify
@options.libraries
@options.json_output
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
    libraries: tuple[str, ...],
    verify: bool,
    afresh: bool,
    as_json: bool,
) -> int:
    """Build the image of a pairing's lock.

    The base gets one layer more: what `apply` would write into its vLLM, and the lock. Only the
    files that the mods touch are read out of the base, and nothing of it is copied that is there
    already. Nothing is built that vllm-mods.toml does not trust. A tag that names another image is not moved.
    """
    library = options.open_library(libraries)
    wanted = library.pairing(name)
    kept = pairing_arguments.read_lock(
        library, pairing_arguments.lock_path(library, name, lock_file), name
    )
    ref = base or kept.lock.base.ref
    with pairing_arguments.on_base(
        library,
        wanted,
        ref,
        epoch=kept.lock.epoch,
        locked=kept.lock,
        afresh=afresh,
        beside=() if lock_file is not None else (kept.path,),
    ) as opened:
        place = outputs.parse(output, opened.base)
        names.parse(tag or pairing_lock.tag(kept.lock, kept.data))
        signer = None if key is None else _signer(key, place)
        _check(kept, opened)
        command_check.demand(command_check.of_pairing(library, wanted), opened.tree, opened.planned)
        drafted = opened.drafted._replace(lock=kept.lock)
        built = building.build(opened.base, drafted, kept.data)
        if verify:
            again = ["build", name, "--afresh", "--base", _absolute(ref), "--lock", kept.path]
            again += [
                part for folder in libraries for part in ("--library", os.path.abspath(folder))
            ]
            build_again(again, archive.thin(built.image, built.tag))
        ready = outputs.prepare(place, built, opened.base, tag or built.tag)
        files = documents_of(kept, ready, documents)
        with pairing_arguments.writing(files, "--documents DIR names another folder"):
            written = outputs.write(ready, kept.lock, attached_of(files, ready, signer))
    if as_json:
        options.print_json(
            {
                "schema": 1,
                "image": built.image.config_digest,
                "manifest": written.pushed or built.image.manifest_digest,
                "layer": built.image.layer_digest,
                "lock": pairing_lock.digest(kept.data),
                "tag": tag or built.tag,
                "output": output or place.kind,
                "verified": verify,
            }
        )
        return EXIT_OK
    click.echo(written.said)
    click.echo(f"image  {built.image.config_digest}")
    if verify:
        click.echo("built three times under different conditions: the same each time")
    return EXIT_OK


def _check(kept: ReadLock, opened: OnBase) -> None:
    moved = pairing_lock.moved(kept.lock, opened.drafted.lock)
    if moved:
        lines = "".join(f"\n  {describe(one)}" for one in moved)
        raise Refused(
            f"the lock {kept.path} no longer holds on {opened.base.reference}; nothing was built"
            f"{lines}",
            hint=f"vllm-mods lock {kept.lock.pairing} --base {opened.base.reference}",
        )


def documents_of(kept: ReadLock, ready: Ready, folder: str | None = None) -> dict[str, bytes]:
    """Return what lies beside an image, by where it goes: bill of materials and statement."""
    if ready.output.kind == outputs.THIN:
        return {}
    beside = os.path.splitext(kept.path)[0]
    if folder is not None:
        beside = os.path.join(folder, os.path.basename(beside))
    given = kept.lock, kept.data, ready.subject
    return {
        f"{beside}.cdx.json": documents.bill_of_materials(*given),
        f"{beside}.intoto.json": documents.provenance(*given),
    }


def attached_of(
    files: Mapping[str, bytes], ready: Ready, signer: Signer | None = None
) -> Attached | None:
    """Return what is attached to an image in a registry: its documents, and what its signer makes."""
    if ready.push is None:
        return None
    from vllm_mods.build import signing  # noqa: PLC0415  (only registries have use for it)

    return signing.attached(files.values(), signer)


def _signer(key: str, place: Output) -> Signer:
    if place.kind != outputs.REGISTRY:
        raise UsageError(
            "--sign is for an image in a registry: the signature is attached to it there",
            hint="--output registry:HOST/NAME",
        )
    from vllm_mods.build import signing  # noqa: PLC0415

    return signing.signer(key)


def _absolute(ref: str) -> str:
    """Return a reference to a file that holds in another folder too."""
    kind, colon, place = ref.partition(":")
    if colon and kind in {"oci", "oci-archive", "docker-archive", "archive"}:
        return f"{kind}:{os.path.abspath(place)}"
    return os.path.abspath(ref) if os.path.exists(ref) else ref
