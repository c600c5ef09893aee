"""``vllm-mods check`` and ``diff``: whether mods fit a vLLM tree, and what they would change in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.check import CheckResult, check
from vllm_mods.api.libraries import choose, other_packages
from vllm_mods.cli import answers, ci_form, options, plan_arguments, terminal
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.ci_form import CiReply
from vllm_mods.cli.manner import option
from vllm_mods.cli.plan_arguments import PlanArguments
from vllm_mods.library.catalog import Library
from vllm_mods.report import checked as report


@click.command(name="check")
@plan_arguments.declared
@options.target_tree
@options.platform
@options.target_in_image
@option(
    "--model MODEL", "Hold the mods against this checkpoint too: a folder, or an id on the Hub."
)
@options.access_to_commits
@options.verify
@options.others
@option("--explain", "List what was not examined too, and why.")
@ci_form.output
def check_command(*, explain: bool, **given: Any) -> CiReply:
    """Tell whether mods fit a vLLM tree; change nothing.

    Without MOD and --pairing, all bundled mods that are marked as default.
    Exit code 0 if and only if every mod would end up in the tree, and with --model is for that one.
    """
    result = _check(**given)
    text = report.text(result, answers.paint, explain=explain)
    answer = Reply(report.data(result), text, result.ok, result.hint)
    return answer, result


@click.command(name="diff")
@plan_arguments.declared
@options.target_tree
@options.access
@options.others
@answers.json_output
def diff_command(**given: Any) -> Reply:
    """Show what mods would change in a vLLM tree, all of them together, as a diff; change nothing.

    `git apply` and `patch -p1` take it, in the folder that holds vllm/. On a terminal $PAGER shows it.
    Without MOD and --pairing, all bundled mods that are marked as default. Exit code 1, and no diff,
    if any mod does not fit.
    """
    result = _check(**given)
    data, text = report.diff(result, answers.paint)
    if not result.ok:
        return Reply(data, text, ok=False, next_step=result.hint)
    if not text:
        answers.note("nothing would change: all is in already")
    return Reply(data, text, show=terminal.paged)


def _check(
    asked: PlanArguments,
    library: Library,
    access: Access,
    target: str,
    others: Sequence[str],
    *,
    model: str | None = None,
    **opening: Any,
) -> CheckResult:
    """Open the tree, read the mods and hold them against it; print on stderr what is left out."""
    tree = access.open(target, workspace=asked.workspace, others=other_packages(others), **opening)
    chosen = choose(library, asked.mods, asked.pairing)
    other_packages(others, chosen.mods)
    paired = chosen.pairing
    result = check(
        chosen.mods,
        tree,
        model=model,
        revision=paired.revision if paired is not None and paired.model == model else None,
        **asked.terms(access.open),
    )
    plan_arguments.announce(result.plan, chosen)
    return result
