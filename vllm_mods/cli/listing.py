"""``vllm-mods list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vllm_mods.cli import options
from vllm_mods.errors import EXIT_OK, EXIT_USAGE, ManifestError

if TYPE_CHECKING:
    from vllm_mods.model import Mod


@click.command(name="list")
@options.libraries
@options.json_output
def command(libraries: tuple[str, ...], *, as_json: bool) -> int:
    """List the mods that can be applied, bundled ones and those of --library."""
    library = options.open_library(libraries)
    mods: list[Mod] = []
    faults: list[ManifestError] = []
    for name in library.names():
        try:
            mods.append(library.load(name))
        except ManifestError as error:
            faults.append(error)
    if as_json:
        answer = {
            "schema": 1,
            "mods": [
                {
                    "name": mod.name,
                    "version": mod.version,
                    "summary": mod.summary,
                    "default": mod.default,
                    "vllm": [variant.vllm for variant in mod.variants],
                    "directory": mod.directory,
                }
                for mod in mods
            ],
            "faulty": [
                {"where": fault.where, "problems": list(fault.problems)} for fault in faults
            ],
        }
        options.print_json(answer)
    else:
        width = max((len(mod.name) for mod in mods), default=0)
        for mod in mods:
            ranges = "; ".join(variant.vllm for variant in mod.variants)
            mark = " [default]" if mod.default else ""
            click.echo(f"{mod.name.ljust(width)}  {mod.version}  {mod.summary}{mark}")
            click.echo(f"{' ' * width}  vLLM {ranges}")
        if not mods:
            click.echo("there are no mods")
    for fault in faults:
        click.echo(f"error: {fault.message}", err=True)
    return EXIT_USAGE if faults else EXIT_OK
