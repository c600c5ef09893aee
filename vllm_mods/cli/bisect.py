"""``vllm-mods bisect``: the commit at which a mod's verdict changed."""

from __future__ import annotations

from typing import Any

import click

from vllm_mods.api.matrix import bisect
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.report import bisect as bisected
from vllm_mods.report.reply import Reply


@click.command(name="bisect")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--repo REPO", "A clone of vLLM's repository.", required=True)
@option("--good REV", "A revision, the older one.", required=True)
@option("--bad REV", "One with another verdict, the newer one.", required=True)
@option("--variant ID", "Ask for this variant of the mod alone.")
@options.library
@answers.json_output
def bisect_command(good: str, bad: str, repo: str, **given: Any) -> Reply:
    """Find the commit at which a mod's verdict changes.

    Nothing is checked out: the repository is read from its objects, along first parents, and only
    commits that touch a file that the verdict rests on are planned. Exit code 0 if a change was
    found, 1 if the verdict is the same at both ends.
    """
    result = bisect(good=good, bad=bad, repo=repo, **given)
    return bisected.bisect(result, good, bad, repository=repo, paint=answers.paint)
