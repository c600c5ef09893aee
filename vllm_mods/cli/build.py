"""``vllm-mods lock``, ``build`` and ``upgrade``: a pairing's hashes, its image, and another vLLM for it."""

from typing import Any

import click

from vllm_mods.api.build import build, lock, moved_since, upgrade
from vllm_mods.api.on_base import lock_path
from vllm_mods.cli import options
from vllm_mods.library.catalog import Library
from vllm_mods.report import built as report
from vllm_mods.report.reply import Reply


@click.command(name="lock")
@options.pairing_name
@options.base
@options.option("--platform OS/ARCH,…", "Platforms to lock, like linux/arm64 [all in the image].")
@options.target_in_image
@options.option("--output FILE", "Where to write the lock [NAME.lock beside the pairing].")
@options.where_served
@options.option("--check", "Print what changed since the lock was made; write nothing.")
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
    """Write a pairing's lock file: the hashes of everything in its image.

    `build` makes the image from the base image and this lock, and from nothing else. If the project's vllm-mods.toml (see
    `add`) does not allow a mod, no lock is written. Every file that `build` adds has the modification time
    SOURCE_DATE_EPOCH, or 1970 if that variable is not set. With --check, exit code 1 if anything changed.
    """
    output = given["output"]
    if check:
        moved = moved_since(library, pairing, platform=platform, **given)
        return report.moved(moved, lock_path(library, pairing, output))
    platforms = platform.split(",") if platform else ()
    result = lock(library, pairing, platforms=platforms, in_image=in_image, **given)
    return report.lock(result, base=given["base"], output=output)


@click.command(name="build")
@options.pairing_name
@options.base
@options.option("--lock FILE", "The lock file [NAME.lock beside the pairing].")
@options.option("--output WHERE", "docker, oci:DIR or registry:REF [where the base image is].")
@options.option("--tag T", "The tag of the image [PAIRING:VLLM_VERSION-LOCK_HASH].")
@options.option("--platform OS/ARCH", "Build only this platform [all platforms in the lock].")
@options.where_served
@options.library
@options.network
@options.json_output
def build_command(pairing: str, lock: str | None, tag: str | None, **given: Any) -> Reply:
    """Build a pairing's image, exactly as its lock says.

    The image is the base image with one more layer: the files that `apply` would write, and the lock. `build` reads only
    those files of the base image that the mods change. It copies no layer that the destination already has. If the project's
    vllm-mods.toml (see `add`) forbids a mod, nothing is built. If the tag already names another image, `build` refuses.
    """
    result = build(pairing=pairing, lock=lock, tag=tag, **given)
    named = (*(("--lock", lock) if lock else ()), *(("--image", tag) if tag else ()))
    return report.build(result, [pairing, *named], output=given["output"])


@click.command(name="upgrade")
@options.pairing_name
@options.option("--to VERSION", "The vLLM version to move to [the pairing's present version].")
@options.option("--base REF", "The base image [the pairing's, with the new version in its tag].")
@options.option("--output WHERE", "docker, oci:DIR or registry:REF [where the base image is].")
@options.own_library
@options.network
@options.source_date_epoch
@options.json_output
def upgrade_command(**given: Any) -> Reply:
    """Move a pairing to another vLLM version: check, lock, serve-check and build, all of it or nothing.

    The pairing's file then names the new base image and the new version range. The new image has a new tag; the old image
    stays. Without --to, the image is rebuilt if the pairing's base image has a new digest. If a mod does not
    apply, nothing is changed, and the command that ports the mod is printed.
    """
    return report.upgrade(upgrade(**given))
