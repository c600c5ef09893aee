"""``vllm-mods diff``."""

from __future__ import annotations

import os
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.check import check
from vllm_mods.base.errors import EXIT_OK
from vllm_mods.base.model import FileChange
from vllm_mods.cli import answers, manner, options, plan_arguments, shown
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.cli.plan_arguments import PlanArguments
from vllm_mods.formats import diff_writer
from vllm_mods.report import data, text


@click.command(name="diff")
@plan_arguments.declared
@options.target_tree
@options.access
@options.others
@manner.json_output
def command(
    asked: PlanArguments,
    libraries: LibraryArguments,
    access: Access,
    target: str,
    *,
    as_json: bool,
) -> int:
    """Show what mods would change in a vLLM tree, all of them together, as a diff; change nothing.

    `git apply` and `patch -p1` take it, in the folder that holds vllm/. On a terminal $PAGER shows it.
    Without MOD and --pairing, all bundled mods that are marked as default. Exit code 1, and no diff,
    if any mod does not fit.
    """
    chosen, tree = plan_arguments.open_both(asked, libraries, access, target)
    result = check(
        chosen.mods,
        tree,
        workspace=asked.workspace,
        strict_version=asked.strict_version,
        only_supported=asked.only_supported,
        base=asked.base and access.open(asked.base),
    )
    plan_arguments.announce(result.plan, chosen)
    diffs = {change.path: _diff(change) for change in result.plan.changes} if result.ok else {}
    if as_json or not result.ok:
        files = [_counted(path, diff) for path, diff in diffs.items()]
        return answers.answer(
            {**data.plan(result.plan), "files": files},
            text.plan(result.plan, answers.paint),
            as_json=as_json,
            ok=result.ok,
            next_step=None if as_json else result.hint,
        )
    if not diffs:
        answers.note("nothing would change: all is in already")
    shown.paged(b"".join(diffs.values()).decode("utf-8", "surrogateescape"))
    return EXIT_OK


def _diff(change: FileChange) -> bytes:
    # A template may go to a folder anywhere, of any name.
    path = os.path.basename(change.path) if change.path.startswith("/") else change.path
    return diff_writer.file_diff(path, change.before, change.after)


def _counted(path: str, diff: bytes) -> dict[str, Any]:
    _head, _, body = diff.partition(b"\n@@")
    lines = body.split(b"\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in (b"+", b"-"))
    return {"path": path, "added": added, "removed": removed}
