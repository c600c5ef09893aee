"""``vllm-mods ps``, ``logs`` and ``stop``: the containers that ``run`` started."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.cli.manner import option
from vllm_mods.run import engine
from vllm_mods.run.service import PAIRING_LABEL

_TABLE = "table {{.Names}}\t{{.Image}}\t{{.Status}}"


@click.command(name="ps")
def ps() -> int:
    """List the containers that `run` started, as docker and podman list them."""
    arguments = ("ps", "--all", "--filter", f"label={PAIRING_LABEL}", "--format", _TABLE)
    codes = [engine.shown(program, arguments) for program in engine.installed()]
    return EXIT_NO if any(codes) else EXIT_OK


@click.command(name="logs")
@click.argument("name", metavar="CONTAINER")
@option("--follow", "Go on with what it says.")
def logs(name: str, *, follow: bool) -> int:
    """Print what a container that `run` started has said. CONTAINER is the pairing's name, if not said otherwise."""
    there = engine.own(name)
    arguments = ["logs", *(["--follow"] if follow else []), there.name]
    return EXIT_NO if engine.shown(there.program, arguments) else EXIT_OK


@click.command(name="stop")
@click.argument("name", metavar="CONTAINER")
@option("--keep", "Keep the container, and with it its log.")
def stop(name: str, *, keep: bool) -> None:
    """Stop a container that `run` started, and remove it. Its image stays."""
    there = engine.own(name)
    engine.call(there.program, "stop", there.name)
    if not keep:
        engine.call(there.program, "rm", there.name)
    click.echo(f"{there.name}: {'stopped' if keep else 'stopped and removed'}")
