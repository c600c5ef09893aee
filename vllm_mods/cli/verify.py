"""``vllm-mods verify``."""

from __future__ import annotations

import click

from vllm_mods import verify
from vllm_mods.cli import options
from vllm_mods.cli.planning import open_folder
from vllm_mods.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.model import Level
from vllm_mods.report import data, text
from vllm_mods.state import read_state


@click.command(name="verify")
@options.mods
@options.target_folder
@options.json_output
def command(mods: tuple[str, ...], target: str, *, as_json: bool) -> int:
    """Tell whether what mods put into a tree is still as they left it.

    Who changed a file since cannot be known. Exit code 1 if anything is not as it was.
    """
    tree = open_folder(target, None)
    state = read_state(tree.root)
    entries = state.receipt.mods if state is not None and state.receipt is not None else ()
    for name in mods:
        if name not in {entry.name for entry in entries}:
            raise UsageError(
                f"{name} is not in {target}", hint=f"vllm-mods status --target {target}"
            )
    chosen = {file.path for entry in entries if entry.name in mods for file in entry.files}
    found = [finding for finding in verify.verify(tree.root) if not mods or finding.path in chosen]
    ok = not any(finding.level is Level.ERROR for finding in found)
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "tree": {"spec": target, "version": tree.version},
                "ok": ok,
                "mods": [
                    data.applied(entry) for entry in entries if not mods or entry.name in mods
                ],
                "findings": [data.finding(finding) for finding in found],
            }
        )
        return EXIT_OK if ok else EXIT_NO
    click.echo(f"vLLM {tree.version or 'of unknown version'} ({target})")
    for finding, line in zip(found, text.findings(found), strict=True):
        click.echo(f"  {finding.path}: {line}" if finding.path else f"  {line}")
    if ok:
        count = len(mods or entries)
        click.echo(
            f"  {count} mod{'s' * (count != 1)}, every file as it was left"
            if count
            else "  no mods are in"
        )
    return EXIT_OK if ok else EXIT_NO
