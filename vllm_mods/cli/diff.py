"""``vllm-mods diff``."""

from __future__ import annotations

import os
from typing import Any

import click

from vllm_mods.api.advice import hint_of
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.base.model import FileChange
from vllm_mods.cli import options, shown
from vllm_mods.cli.plan_arguments import ask
from vllm_mods.formats import diff_writer
from vllm_mods.report import data, text


@click.command(name="diff")
@options.mods
@options.pairing
@options.target_tree
@options.libraries
@options.workspace
@options.strict_version
@options.only_supported
@options.offline
@options.others
@options.json_output
def command(
    mods: tuple[str, ...],
    pairing: str | None,
    target: str,
    libraries: tuple[str, ...],
    workspace: str | None,
    *,
    strict_version: bool,
    only_supported: bool,
    offline: bool,
    others: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what mods would change in a vLLM tree, all of them together, as a diff; change nothing.

    `git apply` and `patch -p1` take it, in the folder that holds vllm/. On a terminal $PAGER shows it.
    Without MOD and --pairing, all bundled mods that are marked as default. Exit code 1, and no diff,
    if any mod does not fit.
    """
    library = options.open_library(libraries)
    tree = options.open_tree(
        target, offline=offline, workspace=workspace, others=options.beside(others)
    )
    planned = ask(
        library,
        mods,
        pairing,
        tree,
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        others=others,
    ).planned
    changes = planned.changes if planned.ok else ()
    diffs = {change.path: _diff(change) for change in changes}
    if as_json:
        files = [_counted(path, made) for path, made in diffs.items()]
        options.print_json({**data.plan(planned), "files": files})
    elif planned.ok:
        if not diffs:
            options.note("nothing would change: all is in already")
        shown.paged(b"".join(diffs.values()).decode("utf-8", "surrogateescape"))
    else:
        click.echo(text.plan(planned, options.paint))
        options.hint(hint_of(planned, tree))
    return EXIT_OK if planned.ok else EXIT_NO


def _diff(change: FileChange) -> bytes:
    # A template may go to a folder anywhere, of any name.
    path = os.path.basename(change.path) if change.path.startswith("/") else change.path
    return diff_writer.file_diff(path, change.before, change.after)


def _counted(path: str, made: bytes) -> dict[str, Any]:
    _head, _, body = made.partition(b"\n@@")
    lines = body.split(b"\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in (b"+", b"-"))
    return {"path": path, "added": added, "removed": removed}
