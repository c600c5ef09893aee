"""``vllm-mods revert``."""

from __future__ import annotations

import click

from vllm_mods.api import apply
from vllm_mods.base.errors import EXIT_OK
from vllm_mods.cli import options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.report import data, text


@click.command(name="revert")
@options.mods
@options.target_folder
@click.option(
    "--discard-edits", is_flag=True, help="Also where a file was edited since the mod went in."
)
@options.json_output
def command(mods: tuple[str, ...], target: str, *, discard_edits: bool, as_json: bool) -> int:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    done = apply.revert(
        target, *mods, discard_edits=discard_edits, source_date_epoch=source_date_epoch()
    )
    for note in done.notes:
        options.note(note)
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "tree": {"spec": target, "version": done.version},
                "reverted": list(done.reverted),
                "mods": [data.applied(entry) for entry in done.mods],
                "changed": list(done.changed),
            }
        )
        return EXIT_OK
    click.echo(text.tree_name(done.version, target))
    for name in done.reverted:
        click.echo(f"  {name} is out")
    click.echo(text.done(done.changed))
    return EXIT_OK
