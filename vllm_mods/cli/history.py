"""``vllm-mods bisect`` and ``upstream``: when a mod's verdict changed, and when it can go."""

from __future__ import annotations

from typing import Any

import click

from vllm_mods.api.bisect import bisect
from vllm_mods.api.upstream import upstream
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.report import bisect as bisected
from vllm_mods.report import upstream as carried
from vllm_mods.report.reply import Reply


@click.command(name="bisect")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--repo REPO", "A clone of vLLM's repository [releases, without it].")
@option("--good REV", "A revision or release, the older one.", required=True)
@option("--bad REV", "One with another verdict, the newer one.", required=True)
@option("--variant ID", "Ask for this variant of the mod alone.")
@options.library
@options.access
@answers.json_output
def bisect_command(good: str, bad: str, repo: str | None, **given: Any) -> Reply:
    """Find the commit or release at which a mod's verdict changes.

    Nothing is checked out: a repository is read from its objects, along first parents, and only
    commits that touch a file that the verdict rests on are planned. Exit code 0 if a change was
    found, 1 if the verdict is the same at both ends.
    """
    result = bisect(good=good, bad=bad, repo=repo, **given)
    return bisected.bisect(result, good, bad, repository=repo, paint=answers.paint)


@click.command(name="upstream")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'.")
@option("--tree TREE", "These trees instead, oldest first.", "trees", multiple=True)
@options.library
@options.access
@answers.json_output
def upstream_command(**given: Any) -> Reply:
    """Tell which hunks of a mod releases carry themselves, and from which one on it can go.

    Without --vllm and --tree, every release from the first one that the mod's ranges name. Exit
    code 0 if the mod is still needed: some release that its ranges name does not carry it whole;
    1 if it is not.
    """
    return carried.carried(upstream(**given), answers.paint)
