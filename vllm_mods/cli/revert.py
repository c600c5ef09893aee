"""``vllm-mods revert``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vllm_mods import applying, keep, planner, receipt, transaction
from vllm_mods.cli import options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.planning import open_folder, receipt_of, refusing
from vllm_mods.errors import EXIT_OK, Refused, UsageError
from vllm_mods.report import data, text
from vllm_mods.reversal import revert_transition
from vllm_mods.state import pristine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.draft import Transition
    from vllm_mods.model import Mod
    from vllm_mods.receipt import Receipt
    from vllm_mods.trees.folder import FolderTree


@click.command(name="revert")
@options.mods
@options.target_folder
@click.option(
    "--discard-edits", is_flag=True, help="Also where a file was edited since the mod went in."
)
@options.json_output
@refusing()
def command(mods: tuple[str, ...], target: str, *, discard_edits: bool, as_json: bool) -> int:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    epoch = source_date_epoch()
    tree = open_folder(target, None)
    transaction.recover(tree.root)
    there = receipt_of(tree)
    known = [entry.name for entry in there.mods] if there is not None else []
    for name in mods:
        if name not in known:
            raise UsageError(
                f"{name} is not in {target}", hint=f"vllm-mods status --target {target}"
            )
    changed: tuple[str, ...] = ()
    if there is not None:
        outcome = transaction.commit(
            tree.root,
            without(tree, there, mods or known, discard_edits=discard_edits),
            workspace=there.workspace,
            source_date_epoch=epoch,
        )
        changed = outcome.changed
        for note in outcome.notes:
            options.note(note)
    gone = list(mods or known)
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "tree": {"spec": target, "version": tree.version},
                "reverted": gone,
                "mods": [data.applied(entry) for entry in there.mods if entry.name not in gone]
                if there is not None
                else [],
                "changed": list(changed),
            }
        )
        return EXIT_OK
    click.echo(f"vLLM {tree.version or 'of unknown version'} ({target})")
    for name in gone:
        click.echo(f"  {name} is out")
    click.echo(text.done(changed))
    return EXIT_OK


def without(
    tree: FolderTree, there: Receipt, gone: Sequence[str], *, discard_edits: bool
) -> Transition:
    """Return the transition to the untouched tree with the remaining mods planned on it anew."""
    stay = [entry for entry in there.mods if entry.name not in gone]
    if not stay:
        return revert_transition(tree.root, there, discard_edits=discard_edits)
    mods = [kept_mod(tree, entry.name) for entry in stay]
    needed = [f"{mod.name} needs {name}" for mod in mods for name in mod.requires if name in gone]
    if needed:
        raise Refused(
            f"nothing was changed in {tree.spec}: {'; '.join(needed)}",
            hint=f"vllm-mods revert {' '.join([*gone, *(mod.name for mod in mods)])} --target {tree.spec}",
        )
    planned = planner.plan(
        mods, pristine(tree, there), workspace=there.workspace or planner.WORKSPACE
    )
    bad = [one for one in planned.mods if not one.verdict.ok]
    if bad:
        lines = [
            f"nothing was changed in {tree.spec}: without {', '.join(gone)} others would not go in"
        ]
        for one in bad:
            lines.append(f"  {one.mod.name}: {one.verdict.value}")
            lines += [f"    {line}" for line in text.findings(one.findings)]
        names = " ".join([*gone, *(one.mod.name for one in bad)])
        raise Refused("\n".join(lines), hint=f"vllm-mods revert {names} --target {tree.spec}")
    forward = applying.transition(planned, None)
    return revert_transition(
        tree.root,
        there,
        mods=forward.mods,
        changes=planned.changes,
        sources=forward.sources,
        discard_edits=discard_edits,
    )


def kept_mod(tree: FolderTree, name: str) -> Mod:
    """Read a mod as it was when it went in. Raises ``Refused`` if that cannot be had."""
    path = receipt.kept(name)
    raw = tree.read(path)
    if raw is None:
        raise Refused(
            f"{tree.root}/{path} is gone, and {name}, which stays, has to be planned anew; nothing was changed",
            hint=f"vllm-mods revert --target {tree.spec}  # takes all mods out",
        )
    return keep.unpack(raw, f"{tree.root}/{path}", name)
