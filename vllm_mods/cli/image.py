"""``vllm-mods image``."""

from typing import Any

import click

from vllm_mods.api.image_verify import image_inspect, image_verify
from vllm_mods.cli import named_files, options
from vllm_mods.cli.options import option
from vllm_mods.report import image as report
from vllm_mods.report.reply import Reply

_chosen = options.all_of(options.access, options.target_in_image, options.platform)
_reference = click.argument("reference", metavar="REF")


@click.group(name="image")
def command() -> None:
    """Tell what is in an image, and whether it is intact.

    REF is docker:NAME, podman:NAME, container:NAME, oci:FOLDER[:TAG],
    registry:HOST/NAME:TAG, or a bare NAME of an image in an engine here.
    """


@command.command(name="inspect")
@_reference
@_chosen
@options.json_output
def inspect(**given: Any) -> Reply:
    """Tell what is in an image: vLLM, mods, lock, and files that are not as they were left."""
    return report.inspect(image_inspect(**given))


@command.command(name="verify")
@_reference
@option("--lock FILE", "Compare with this lock too.")
@_chosen
@options.json_output
def verify(lock: str | None, **given: Any) -> Reply:
    """Tell whether an image is the one that its lock makes: layers, every setting, every file.

    Without --lock that is the lock inside. Of an index, every image is looked at, and that it has those
    that the lock is of. Exit code 1 if anything else is in it, and what that is.
    """
    written = None if lock is None else named_files.read(lock)
    return report.verified(image_verify(lock=written, lock_name=lock or "", **given))
