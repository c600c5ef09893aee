"""``vllm-mods status``."""

from __future__ import annotations

import click

from vllm_mods.cli import options
from vllm_mods.cli.planning import open_folder
from vllm_mods.errors import EXIT_NO, EXIT_OK
from vllm_mods.report import data
from vllm_mods.state import read_state


@click.command(name="status")
@options.mods
@options.target_folder
@options.json_output
def command(mods: tuple[str, ...], target: str, *, as_json: bool) -> int:
    """Tell which mods are in a vLLM tree, by its receipt.

    With MOD: exit code 0 if and only if all of them are in.
    """
    tree = open_folder(target, None)
    state = read_state(tree.root)
    receipt = state.receipt if state is not None else None
    entries = receipt.mods if receipt is not None else ()
    absent = [name for name in mods if name not in {entry.name for entry in entries}]
    shown = [entry for entry in entries if not mods or entry.name in mods]
    interrupted = state is not None and state.unfinished is not None
    ok = not absent and not interrupted
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "tree": {"spec": target, "version": tree.version},
                "ok": ok,
                "unfinished": interrupted,
                "mods": [data.applied(entry) for entry in shown],
                "absent": absent,
            }
        )
        return EXIT_OK if ok else EXIT_NO
    click.echo(f"vLLM {tree.version or 'of unknown version'} ({target})")
    for entry in shown:
        click.echo(f"  {entry.name} {entry.version} (variant {entry.variant})")
        for file in entry.files:
            click.echo(f"    {file.path}")
    if not entries:
        click.echo("  no mods are in")
    for name in absent:
        click.echo(f"  {name}: is not in")
    if interrupted:
        click.echo(
            "error: an apply or revert was interrupted here; the next one puts the tree back first",
            err=True,
        )
    return EXIT_OK if ok else EXIT_NO
