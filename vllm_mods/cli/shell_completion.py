"""``vllm-mods completion``: what a shell runs when somebody presses TAB, which is click's own."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vllm_mods.cli import main


@click.command(name="completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print the shell code that completes vllm-mods commands.

    Commands, options, mods, pairings, files and folders.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  (click has all three)
    click.echo(kind(main, {}, "vllm-mods", "_VLLM_MODS_COMPLETE").source())
