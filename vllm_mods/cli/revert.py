"""``vllm-mods revert``."""

from __future__ import annotations

import click

from vllm_mods.api import apply
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.report import data, text


@click.command(name="revert")
@options.mods
@options.target_folder
@option("--discard-edits", "Also where a file was edited since the mod went in.")
@manner.json_output
def command(mods: tuple[str, ...], target: str, *, discard_edits: bool) -> int:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    done = apply.revert(
        target, *mods, discard_edits=discard_edits, source_date_epoch=source_date_epoch()
    )
    for note in done.notes:
        answers.note(note)
    answer = {
        "tree": {"spec": target, "version": done.version},
        "reverted": list(done.reverted),
        "mods": [data.applied(entry) for entry in done.mods],
        "changed": list(done.changed),
    }
    lines = [text.tree_name(done.version, target)]
    lines += [f"  {name} is out" for name in done.reverted]
    return answers.answer(answer, "\n".join((*lines, text.done(done.changed))))
