"""``vllm-mods remove``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_OK
from vllm_mods.cli import options
from vllm_mods.sharing import changing


@click.command(name="remove")
@click.argument("library", metavar="LIBRARY")
@options.json_output
def command(library: str, *, as_json: bool) -> int:
    """Take a library out of the project, and its mods out of what targets hold. No vLLM is changed.

    `vllm-mods sync` takes them out of the target; `vllm-mods revert` takes one mod out of a vLLM.
    """
    where = changing.there().where
    mods = changing.remove(where, library)
    if as_json:
        options.print_json(
            {"schema": 1, "project": where, "removed": library, "no_longer_named": list(mods)}
        )
        return EXIT_OK
    click.echo(f"{library} is out of {where}")
    for mod in mods:
        click.echo(f"  no target names {mod} any more")
    options.hint("vllm-mods sync  # takes its mods out of the target")
    return EXIT_OK
