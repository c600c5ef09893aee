"""``vllm-mods logs``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.run import engine


@click.command(name="logs")
@click.argument("name", metavar="CONTAINER")
@click.option("--follow", is_flag=True, help="Go on with what it says.")
def command(name: str, *, follow: bool) -> int:
    """Print what a container that `run` started has said. CONTAINER is the pairing's name, if not said otherwise."""
    there = engine.own(name)
    arguments = ["logs", *(["--follow"] if follow else []), there.name]
    return EXIT_NO if engine.shown(there.program, arguments) else EXIT_OK
