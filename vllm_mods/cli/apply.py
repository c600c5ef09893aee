"""``vllm-mods apply``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from vllm_mods import applying, receipt, transaction
from vllm_mods.cli import options
from vllm_mods.cli.planning import ask, open_folder, refusing
from vllm_mods.errors import EXIT_OK, Refused, UsageError
from vllm_mods.planner import WORKSPACE
from vllm_mods.report import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.model import Plan
    from vllm_mods.pairing import Pairing
    from vllm_mods.trees.folder import FolderTree


@click.command(name="apply")
@options.mods
@options.pairing
@options.target_folder
@options.libraries
@options.workspace
@options.strict_version
@options.only_supported
@click.option(
    "--break-links",
    is_flag=True,
    help="Give a hard-linked file a copy of its own before changing it.",
)
@options.json_output
@refusing()
def command(
    mods: tuple[str, ...],
    pairing: str | None,
    target: str,
    libraries: tuple[str, ...],
    workspace: str | None,
    *,
    strict_version: bool,
    only_supported: bool,
    break_links: bool,
    as_json: bool,
) -> int:
    """Put mods into an installed vLLM, whole or not at all.

    Without MOD and --pairing, all bundled mods that are marked as default. Mods that are in already
    are left as they are. If any mod does not fit, nothing is changed (exit code 3).
    With SOURCE_DATE_EPOCH set, every file written has that modification time.
    """
    epoch = source_date_epoch()
    library = options.open_library(libraries)
    paired = None if pairing is None else library.pairing(pairing)
    tree = open_folder(target, workspace)
    transaction.recover(tree.root)
    asked = ask(
        library,
        mods,
        tree,
        workspace=tree.workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        pairing=paired,
    )
    planned = asked.planned
    if not planned.ok:
        if as_json:
            print_json(planned, (), None)
        raise refusal(planned, target)
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if any(one.verdict.writes for one in planned.mods):
        outcome = transaction.commit(
            tree.root,
            applying.transition(planned, asked.there),
            workspace=tree.workspace,
            source_date_epoch=epoch,
            break_links=break_links,
        )
        changed, notes = outcome.changed, outcome.notes
    for note in notes:
        options.note(note)
    script = None if paired is None else serve_script(paired, planned, tree)
    if as_json:
        print_json(planned, changed, script)
        return EXIT_OK
    click.echo(text.plan(planned, options.paint))
    click.echo(text.done(changed))
    if script is not None:
        click.echo(f"serve with (pairing {pairing}):\n{script}")
        return EXIT_OK
    templates = tree.workspace or os.path.join(tree.root, receipt.TEMPLATES)
    for line in text.serve_arguments(planned, templates):
        click.echo(line)
    return EXIT_OK


def serve_script(pairing: Pairing, planned: Plan, tree: FolderTree) -> str:
    """Return the serve command of a pairing, its template where it lies in this tree."""
    from vllm_mods import pairing as pairings  # noqa: PLC0415

    folder = tree.workspace or os.path.join(tree.root, WORKSPACE)
    files = [
        template.file
        for one in planned.mods
        for template in (one.variant.templates if one.variant else ())
    ]
    return pairings.serve_script(pairing, {file: os.path.join(folder, file) for file in files})


def print_json(planned: Plan, changed: Sequence[str], script: str | None) -> None:
    """Print the answer of ``check``, the paths that were changed, and a pairing's command."""
    from vllm_mods.report import data  # noqa: PLC0415

    serve = {} if script is None else {"serve": script}
    options.print_json({**data.plan(planned), "changed": list(changed), **serve})


def refusal(planned: Plan, target: str) -> Refused:
    """Say why nothing was done, in terms of the first mod that does not go in."""
    bad = [one for one in planned.mods if not one.verdict.ok]
    lines = [f"nothing was changed in {target}: vLLM {planned.version or 'of unknown version'}"]
    for one in bad:
        lines.append(f"  {one.mod.name} {one.mod.version}: {one.verdict.value}")
        lines += [f"    {line}" for line in text.findings(one.findings)]
    names = " ".join(one.mod.name for one in planned.mods)
    return Refused("\n".join(lines), hint=f"vllm-mods check {names} --target {target} --json")


def source_date_epoch() -> int | None:
    """Read SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/)."""
    value = os.environ.get("SOURCE_DATE_EPOCH")
    if value is None or value == "":
        return None
    if not value.isascii() or not value.isdigit():
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {value!r}, and it must be seconds since 1970",
            hint="SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)",
        )
    return int(value)
