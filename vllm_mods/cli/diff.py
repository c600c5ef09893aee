"""``vllm-mods diff``."""

from __future__ import annotations

import os
from typing import Any

import click

from vllm_mods.api.advice import hint_of
from vllm_mods.base.errors import EXIT_OK
from vllm_mods.base.model import FileChange
from vllm_mods.cli import answers, manner, options, plan_arguments, shown
from vllm_mods.cli.plan_arguments import PlanArguments
from vllm_mods.formats import diff_writer
from vllm_mods.report import data, text


@click.command(name="diff")
@plan_arguments.declared
@options.target_tree
@manner.offline
@options.others
@manner.json_output
def command(asked: PlanArguments, target: str) -> int:
    """Show what mods would change in a vLLM tree, all of them together, as a diff; change nothing.

    `git apply` and `patch -p1` take it, in the folder that holds vllm/. On a terminal $PAGER shows it.
    Without MOD and --pairing, all bundled mods that are marked as default. Exit code 1, and no diff,
    if any mod does not fit.
    """
    library = options.open_library()
    tree = options.open_tree(target, workspace=asked.workspace, others=options.beside(asked.others))
    planned = plan_arguments.ask(library, asked, tree).planned
    diffs = {change.path: _diff(change) for change in planned.changes} if planned.ok else {}
    if manner.as_json() or not planned.ok:
        files = [_counted(path, made) for path, made in diffs.items()]
        return answers.answer(
            {**data.plan(planned), "files": files},
            text.plan(planned, answers.paint),
            ok=planned.ok,
            next_step=None if planned.ok else hint_of(planned, tree),
        )
    if not diffs:
        answers.note("nothing would change: all is in already")
    shown.paged(b"".join(diffs.values()).decode("utf-8", "surrogateescape"))
    return EXIT_OK


def _diff(change: FileChange) -> bytes:
    # A template may go to a folder anywhere, of any name.
    path = os.path.basename(change.path) if change.path.startswith("/") else change.path
    return diff_writer.file_diff(path, change.before, change.after)


def _counted(path: str, made: bytes) -> dict[str, Any]:
    _head, _, body = made.partition(b"\n@@")
    lines = body.split(b"\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in (b"+", b"-"))
    return {"path": path, "added": added, "removed": removed}
