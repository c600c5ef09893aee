"""``vllm-mods ps``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.run import engine
from vllm_mods.run.service import PAIRING_LABEL

_TABLE = "table {{.Names}}\t{{.Image}}\t{{.Status}}"


@click.command(name="ps")
def command() -> int:
    """List the containers that `run` started, as docker and podman list them."""
    arguments = ("ps", "--all", "--filter", f"label={PAIRING_LABEL}", "--format", _TABLE)
    codes = [engine.shown(program, arguments) for program in engine.installed()]
    return EXIT_NO if any(codes) else EXIT_OK
