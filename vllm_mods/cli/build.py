"""``vllm-mods build``."""

from __future__ import annotations

import os

import click

from vllm_mods.base.cache import Cache, cache_folder
from vllm_mods.base.errors import EXIT_OK, Refused, refusing
from vllm_mods.build import archive, building, documents, outputs
from vllm_mods.build.building import Built
from vllm_mods.build.outputs import Output
from vllm_mods.build.reproduction import build_again
from vllm_mods.cli import options, pairing_arguments
from vllm_mods.cli.pairing_arguments import OnBase, ReadLock
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.receipt import TOOL
from vllm_mods.images import names
from vllm_mods.library.catalog import Library


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
        _check(kept, opened)
        _demand_command(library, wanted, opened, None if afresh else pairing_lock.digest(kept.data))
        drafted = opened.drafted._replace(lock=kept.lock)
        built = building.build(opened.base, drafted, kept.data)
        if verify:
            again = ["build", name, "--afresh", "--base", _absolute(ref), "--lock", kept.path]
            again += [
                part for folder in libraries for part in ("--library", os.path.abspath(folder))
            ]
            build_again(again, archive.thin(built.image, built.tag))
        with pairing_arguments.writing(
            documents_of(kept, built, documents, place), "--documents DIR names another folder"
        ):
            written = outputs.write(place, built, opened.base, kept.lock, tag or built.tag)
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


def _demand_command(library: Library, wanted: Pairing, opened: OnBase, digest: str | None) -> None:
    """Hold the command against the base; what held for a lock holds, since the lock decides all of it."""
    cache = Cache(cache_folder(os.environ), note=options.note)
    if digest is not None and cache.lookup("commands-taken", TOOL, digest) is not None:
        return
    from vllm_mods.cli import command_check  # noqa: PLC0415  (an eighth of the time of a build)

    asked = command_check.of_pairing(library, wanted)
    if command_check.demand(asked, opened.tree, opened.planned) and digest is not None:
        cache.record("commands-taken", TOOL, digest, data=b"")


def _check(kept: ReadLock, opened: OnBase) -> None:
    moved = pairing_lock.moved(kept.lock, opened.drafted.lock)
    if moved:
        lines = "".join(f"\n  {one}" for one in moved)
        raise Refused(
            f"the lock {kept.path} no longer holds on {opened.base.reference}; nothing was built"
            f"{lines}",
            hint=f"vllm-mods lock {kept.lock.pairing} --base {opened.base.reference}",
        )


def documents_of(
    kept: ReadLock, built: Built, folder: str | None, place: Output
) -> dict[str, bytes]:
    """Return what lies beside an image, by where it goes."""
    if place.kind == outputs.THIN:
        return {}
    beside = os.path.splitext(kept.path)[0]
    if folder is not None:
        beside = os.path.join(folder, os.path.basename(beside))
    # A builder makes an image of its own around the layer.
    is_layer = place.kind == outputs.DOCKERFILE
    image = built.image.layer_digest if is_layer else built.image.config_digest
    return {
        f"{beside}.cdx.json": documents.bill_of_materials(kept.lock, kept.data, image),
        f"{beside}.intoto.json": documents.provenance(kept.lock, kept.data, image),
    }


def _absolute(ref: str) -> str:
    """Return a reference to a file that holds in another folder too."""
    kind, colon, place = ref.partition(":")
    if colon and kind in {"oci", "oci-archive", "docker-archive", "archive"}:
        return f"{kind}:{os.path.abspath(place)}"
    return os.path.abspath(ref) if os.path.exists(ref) else ref
