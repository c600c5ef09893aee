"""``vllm-mods doctor``."""

from __future__ import annotations

import click

from vllm_mods.api.access import Access
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.report.reply import Reply


@click.command(name="doctor")
@option(
    "--target TREE",
    "A folder, image:REF, or any other tree [the active environment's vLLM].",
    envvar=options.TARGET,
)
@options.access
@answers.json_output
def command(target: str | None, access: Access) -> Reply:
    """Tell what this installation is, what a vLLM tree is, and what is wrong with either.

    Nothing is written, and no vLLM is imported. Exit code 0 if nothing is wrong, 1 if something is.
    """
    from vllm_mods.diagnosis.checks import examine  # noqa: PLC0415  (not needed with `--help`)
    from vllm_mods.report import doctor as report  # noqa: PLC0415

    return report.examined(examine(target, access.open))
