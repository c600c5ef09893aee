"""``vllm-mods export PAIRING``."""

from __future__ import annotations

import os

import click

from vllm_mods.api.export import export_recipe
from vllm_mods.api.run import plan_service
from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.cli import answers, options, terminal
from vllm_mods.cli.containers import starting
from vllm_mods.cli.manner import option
from vllm_mods.cli.named_files import write_new
from vllm_mods.library.catalog import Library
from vllm_mods.running import files
from vllm_mods.running.service import StartOptions

_RECIPE = "recipe"


@click.command(name="export")
@options.pairing_name
@option("--output PATH", "A new file, or a folder where there are several [standard output].")
@option(
    "--format",
    "What the pairing becomes.",
    "form",
    type=click.Choice((_RECIPE, *files.FORMATS)),
    default=_RECIPE,
    show_default=True,
)
@starting
@options.library
def command(
    pairing: str, library: Library, *, output: str | None, form: str, start: StartOptions
) -> int:
    """Write a pairing as a recipe or as what starts its image.

    The recipe renders the same command; with --format, it is a file that starts the image of the pairing's lock, for
    a cluster on two nodes. --lock and what follows it are for these.
    """
    if form == _RECIPE:
        _check_unused(start)
        recipe = export_recipe(library, pairing)
        texts = {_RECIPE: recipe.text}
        for note in recipe.notes:
            answers.note(note)
    else:
        planned = plan_service(library, pairing, start, note=answers.note, elsewhere=True)
        texts = files.write(planned.service, form)
    if output is None:
        terminal.file("\n".join(texts.values()))
        return EXIT_OK
    if len(texts) > 1:
        os.makedirs(output, exist_ok=True)
    for file, text in texts.items():
        write_new(os.path.join(output, file) if len(texts) > 1 else output, text.encode())
    return EXIT_OK


def _check_unused(start: StartOptions) -> None:
    """Raise ``UsageError`` for an option that only what starts a container has a place for."""
    for name, value, default in zip(start._fields, start, StartOptions(), strict=True):
        if value != default:
            raise UsageError(
                f"--{name.replace('_', '-')} says how a container is started, and a recipe does not",
                hint=f"--format {files.FORMATS[0]}",
            )
