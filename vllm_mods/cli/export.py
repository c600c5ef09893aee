"""``vllm-mods export PAIRING``."""

from __future__ import annotations

import click

from vllm_mods.cli import options
from vllm_mods.cli.importing import write_new
from vllm_mods.errors import EXIT_OK


@click.command(name="export")
@click.argument("name", metavar="PAIRING", shell_complete=options.complete_pairings)
@click.option("--output", metavar="FILE", help="Write it to a new file [standard output].")
@options.libraries
def command(name: str, output: str | None, libraries: tuple[str, ...]) -> int:
    """Write a pairing as a recipe that renders the same command."""
    from vllm_mods import recipe_writing  # noqa: PLC0415

    pairing = options.open_library(libraries).pairing(name)
    text = recipe_writing.write(pairing)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_new(output, text.encode())
        click.echo(f"wrote {output}", err=True)
    known = pairing.recipe.mods if pairing.recipe else {}
    for mod in dict.fromkeys((*pairing.mods, *pairing.templates)):
        if mod not in known:
            options.note(
                f"a launcher runs the folder mods/{mod}, which is not written: "
                "have the image built with the mods instead, or put such a folder there"
            )
    return EXIT_OK
