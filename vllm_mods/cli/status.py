"""``vllm-mods status``."""

from __future__ import annotations

import click

from vllm_mods.api import apply
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.cli import options
from vllm_mods.report import data, text


@click.command(name="status")
@options.mods
@options.target_folder
@options.json_output
def command(mods: tuple[str, ...], target: str, *, as_json: bool) -> int:
    """Tell which mods are in a vLLM tree: what its receipt says, and whether each file is so.

    Exit code 0 if and only if all that went in is in, as it was left; with MOD, if all of them are.
    """
    mods = tuple(name.rpartition("/")[2] for name in mods)  # whose they are, no tree says
    there = apply.status(target, *mods)
    absent = [name for name in mods if name not in {entry.name for entry in there.mods}]
    shown = [entry for entry in there.mods if not mods or entry.name in mods]
    ok = there.ok and not absent
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "tree": {"spec": target, "version": there.version},
                "ok": ok,
                "unfinished": there.unfinished,
                "mods": [
                    {**data.applied(entry), "standing": there.standing(entry)} for entry in shown
                ],
                "absent": absent,
                "findings": [data.finding(finding) for finding in there.findings],
                "hint": there.hint,
            }
        )
        return EXIT_OK if ok else EXIT_NO
    click.echo(text.tree_name(there.version, target))
    for entry in shown:
        click.echo(
            f"  {entry.name} {entry.version} (variant {entry.variant}){text.STANDING[there.standing(entry)]}"
        )
        for file in entry.files:
            click.echo(f"    {file.path}")
    if not there.mods:
        click.echo("  no mods are in")
    for name in absent:
        click.echo(f"  {name}: is not in")
    for line in text.located(there.findings):
        click.echo(line)
    options.hint(there.hint)
    return EXIT_OK if ok else EXIT_NO
