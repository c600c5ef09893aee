"""``vllm-mods verify``."""

from __future__ import annotations

import os

import click

from vllm_mods.api import apply
from vllm_mods.base import limits
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.cli import options
from vllm_mods.formats import receipt, receipt_diff
from vllm_mods.report import data, text


@click.command(name="verify")
@options.mods
@click.option(
    "--target",
    metavar="DIR",
    help="The vllm package folder, or the folder that holds it [the active environment's].",
)
@click.option(
    "--receipt",
    "receipts",
    multiple=True,
    metavar="FILE...",
    help="Compare receipts, such as those of the nodes of a cluster.",
)
@options.json_output
def command(
    mods: tuple[str, ...], target: str | None, receipts: tuple[str, ...], *, as_json: bool
) -> int:
    """Tell whether what mods put into a tree is still as they left it.

    Who changed a file since cannot be known. Exit code 1 if anything is not as it was.

    With --receipt FILE FILE...: tell where these receipts differ, and with --target that of a
    tree from them. Exit code 1 if anything differs.
    """
    if receipts:
        return _compare((*receipts, *mods), target, as_json=as_json)
    target = target or os.environ.get(options.TARGET) or options.active_target()
    there = apply.verify(target, *mods)
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "tree": {"spec": target, "version": there.version},
                "ok": there.ok,
                "mods": [data.applied(entry) for entry in there.mods],
                "findings": [data.finding(finding) for finding in there.findings],
            }
        )
        return EXIT_OK if there.ok else EXIT_NO
    click.echo(text.tree_name(there.version, target))
    for line in text.located(there.findings):
        click.echo(line)
    if there.ok:
        count = len(there.mods)
        click.echo(
            f"  {count} mod{'s' * (count != 1)}, every file as it was left"
            if count
            else "  no mods are in"
        )
    return EXIT_OK if there.ok else EXIT_NO


def _compare(files: tuple[str, ...], target: str | None, *, as_json: bool) -> int:
    names = list(files)
    there: list[receipt.Receipt | None] = []
    for path in files:
        try:
            with open(path, "rb") as file:
                raw = limits.bounded(file, limits.RECEIPT, path)
                there.append(receipt.parse(raw, path))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", hint=f"ls -la {path}") from error
    if target is not None:
        names.append(target)
        there.append(apply.status(target).receipt)
    if len(names) < 2:
        raise UsageError(
            f"one receipt alone differs from none: {names[0]}",
            hint="vllm-mods verify --receipt FILE FILE, or --receipt FILE --target DIR",
        )
    found = receipt_diff.disagreements(there)
    if as_json:
        options.print_json(
            {
                "schema": data.SCHEMA,
                "ok": not found,
                "receipts": names,
                "differences": [data.disagreement(one) for one in found],
            }
        )
        return EXIT_NO if found else EXIT_OK
    for line in text.disagreements(found, names):
        click.echo(line)
    if not found:
        click.echo(f"{len(names)} receipts, all the same")
    return EXIT_NO if found else EXIT_OK
