"""``vllm-mods lock``, ``build`` and ``upgrade``: a pairing's hashes, its image, and another vLLM for it."""

from typing import Any

import click

from vllm_mods.api.build import build, lock, moved_since, upgrade
from vllm_mods.api.on_base import lock_path
from vllm_mods.cli import options
from vllm_mods.cli.options import option
from vllm_mods.library.catalog import Library
from vllm_mods.report import built as report
from vllm_mods.report.reply import Reply


@click.command(name="lock")
@options.pairing_name
@options.base
@option(
    "--platform OS/ARCH,…",
    "Which images of an index, such as linux/arm64 [all of them, in one lock].",
)
@options.target_in_image
@option("--output FILE", "Where the lock lies [pairings/NAME.lock beside the pairing].")
@options.where_served
@option("--check", "Say what moved since the lock was made; write nothing.")
@options.own_library
@options.network
@options.source_date_epoch
@options.json_output
def lock_command(
    pairing: str,
    library: Library,
    *,
    platform: str | None,
    in_image: str | None,
    check: bool,
    **given: Any,
) -> Reply:
    """Resolve a pairing to hashes, and write them down.

    What is built follows from the base and this lock alone. With --check nothing is written, and
    the exit code is 1 if anything moved.
    Nothing is locked that vllm-mods.toml does not trust. The time of everything that is built is SOURCE_DATE_EPOCH, else 1970.
    """
    output = given["output"]
    if check:
        moved = moved_since(library, pairing, platform=platform, **given)
        return report.moved(moved, lock_path(library, pairing, output))
    platforms = platform.split(",") if platform else ()
    result = lock(library, pairing, platforms=platforms, in_image=in_image, **given)
    return report.lock(result, output=output)


@click.command(name="build")
@options.pairing_name
@options.base
@option("--lock FILE", "The lock [NAME.lock beside the pairing].")
@option(
    "--output WHERE",
    "docker, oci:DIR or registry:REF [the engine that the base lies in].",
)
@option("--tag T", "Another name than PAIRING:VLLM-LOCK.")
@option(
    "--platform OS/ARCH",
    "One of those that the lock is of [all of them, where the base is an index].",
)
@options.where_served
@options.library
@options.network
@options.json_output
def build_command(pairing: str, lock: str | None, tag: str | None, **given: Any) -> Reply:
    """Build the image of a pairing's lock.

    The base gets one layer more: what `apply` would write into its vLLM, and the lock. Only the
    files that the mods touch are read out of the base, and nothing of it is copied that is there
    already. Nothing is built that vllm-mods.toml does not trust. A tag that names another image is not moved.
    """
    result = build(pairing=pairing, lock=lock, tag=tag, **given)
    named = [
        word
        for name, value in (("--lock", lock), ("--image", tag))
        if value
        for word in (name, value)
    ]
    return report.build(result, [pairing, *named], output=given["output"])


@click.command(name="upgrade")
@options.pairing_name
@option("--to VERSION", "The vLLM to move to [the one that it is on].")
@option(
    "--base REF",
    "The image to build on, wherever it lies [the pairing's, with that version in its tag].",
)
@option("--output WHERE", "As `build` has it [the engine that the base lies in].")
@options.own_library
@options.network
@options.source_date_epoch
@options.json_output
def upgrade_command(**given: Any) -> Reply:
    """Move a pairing to another vLLM: check, lock, serve-check and build, all of it or nothing.

    The pairing's file gets the base and the range of that version, the image a tag of its own; the old
    image stays. Without --to, a base that has another digest by now gets the pairing's layer anew. Nothing
    is ported: a mod that does not fit is a refusal that names the command.
    """
    return report.upgrade(upgrade(**given))
