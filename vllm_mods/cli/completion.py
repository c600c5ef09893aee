"""``vllm-mods completion SHELL``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vllm_mods.base.errors import EXIT_OK
from vllm_mods.cli import COMPLETE, main, shell_completion


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the shell code that completes vllm-mods commands.

    Commands, options, mods, pairings, and trees: kinds, folders, the releases that locks know.
    """
    shell_completion.register()
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  (click has all three)
    click.echo(kind(main, {}, "vllm-mods", COMPLETE).source())
    return EXIT_OK
