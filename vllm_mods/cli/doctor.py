"""``vllm-mods doctor``."""

from __future__ import annotations

import functools

import click

from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option


@click.command(name="doctor")
@option(
    "--target TREE",
    "A folder, image:REF, or any other tree [the active environment's vLLM].",
    envvar=options.TARGET,
)
@options.libraries
@options.workspace
@manner.offline
@manner.json_output
def command(target: str | None, workspace: str | None) -> int:
    """Tell what this installation is, what a vLLM tree is, and what is wrong with either.

    Nothing is written, and no vLLM is imported. Exit code 0 if nothing is wrong, 1 if something is.
    """
    from vllm_mods.diagnosis.checks import examine  # noqa: PLC0415  (not needed with `--help`)
    from vllm_mods.report import doctor as report  # noqa: PLC0415

    found = examine(
        target,
        options.open_library,
        functools.partial(options.open_tree, workspace=workspace),
        workspace=workspace,
    )
    return answers.answer(report.as_data(found), report.render(found, answers.paint), ok=found.ok)
