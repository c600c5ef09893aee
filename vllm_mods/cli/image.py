"""``vllm-mods image``."""

from typing import Any

import click

from vllm_mods.api.image_verify import image_inspect, image_verify
from vllm_mods.cli import named_files, options
from vllm_mods.report import image as report
from vllm_mods.report.reply import Reply

_chosen = options.all_of(options.access, options.target_in_image, options.platform)
_reference = click.argument("reference", metavar="REF")


@click.group(name="image")
def command() -> None:
    """Show what is in an image, and whether it is intact.

    REF, the argument of each command, is docker:NAME, podman:NAME, container:NAME, oci:FOLDER[:TAG], registry:HOST/NAME:TAG,
    or a bare NAME of an image in an engine on this machine.
    """


@command.command(name="inspect")
@_reference
@_chosen
@options.json_output
def inspect(**given: Any) -> Reply:
    """Show an image's vLLM, mods, lock and changed files."""
    return report.inspect(image_inspect(**given))


@command.command(name="verify")
@_reference
@options.option("--lock FILE", "Also compare the image with this lock.")
@_chosen
@options.json_output
def verify(lock: str | None, **given: Any) -> Reply:
    """Check every layer, setting and file of an image against its lock.

    The lock inside the image is used; with --lock, the image must match that file too. Without --platform, every platform of a multi-platform
    image is checked, and none may be missing. If the image differs, the differences are printed and the exit code is 1.
    """
    written = None if lock is None else named_files.read(lock)
    return report.verified(image_verify(lock=written, lock_name=lock or "", **given))
