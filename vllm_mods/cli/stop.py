"""``vllm-mods stop``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_OK
from vllm_mods.run import engine


@click.command(name="stop")
@click.argument("name", metavar="CONTAINER")
@click.option("--keep", is_flag=True, help="Keep the container, and with it its log.")
def command(name: str, *, keep: bool) -> int:
    """Stop a container that `run` started, and remove it. Its image stays."""
    there = engine.own(name)
    engine.call(there.program, "stop", there.name)
    if not keep:
        engine.call(there.program, "rm", there.name)
    click.echo(f"{there.name}: {'stopped' if keep else 'stopped and removed'}")
    return EXIT_OK
