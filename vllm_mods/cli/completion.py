"""``vllm-mods completion SHELL``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vllm_mods.errors import EXIT_OK


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print the shell code that completes vllm-mods commands.

    For bash: put `eval "$(vllm-mods completion bash)"` into ~/.bashrc.
    """
    from vllm_mods.cli import main  # noqa: PLC0415  (the group that this command is part of)

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  (click has all three)
    click.echo(kind(main, {}, "vllm-mods", "_VLLM_MODS_COMPLETE").source())
    return EXIT_OK
