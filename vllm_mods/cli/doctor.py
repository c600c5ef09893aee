"""``vllm-mods doctor``."""

from __future__ import annotations

import functools
import os
from typing import Any

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
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
@option(
    "--report FILE",
    "Write a report for the developers there, without secrets; `-` prints it.",
    "output",
)
@manner.json_output
def command(target: str | None, workspace: str | None, output: str | None) -> int:
    """Tell what this installation is, what a vLLM tree is, and what is wrong with either.

    Nothing but --report is written, and no vLLM is imported. Exit code 0 if nothing is wrong, 1 if something is.
    """
    from vllm_mods.diagnosis.checks import examine  # noqa: PLC0415  (not needed with `--help`)
    from vllm_mods.report import doctor as report  # noqa: PLC0415

    found = examine(
        target,
        options.open_library,
        functools.partial(options.open_tree, workspace=workspace),
        workspace=workspace,
    )
    if output is not None:
        _write_report(output, report.as_data(found))
    if output == "-":
        return EXIT_OK if found.ok else EXIT_NO
    return answers.answer(report.as_data(found), report.render(found, answers.paint), ok=found.ok)


def _write_report(output: str, found: dict[str, Any]) -> None:
    """Write a report. Raises ``UsageError`` for a file that is there already."""
    from vllm_mods.diagnosis import bug  # noqa: PLC0415

    arguments = click.get_current_context().obj["arguments"]
    text = bug.report(arguments, os.environ, parts={"doctor": found})
    if output == "-":
        click.echo(text, nl=False)
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(output, flags, 0o600), "w", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"{output}: {error.strerror}", hint="name a file that is not there yet"
        ) from error
    click.echo(f"wrote {output}: read it before you send it", err=True)
