"""``vllm-mods bisect`` and ``upstream``: when a mod's verdict changed, and when it can go."""

from __future__ import annotations

import click

from vllm_mods.api.access import Access
from vllm_mods.api.bisect import bisect
from vllm_mods.api.upstream import upstream
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.report import bisect as bisected
from vllm_mods.report import upstream as carried


@click.command(name="bisect")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--repo REPO", "A clone of vLLM's repository [releases, without it].")
@option("--good REV", "A revision or release, the older one.", required=True)
@option("--bad REV", "One with another verdict, the newer one.", required=True)
@option("--variant ID", "Ask for this variant of the mod alone.")
@options.libraries
@options.access
@manner.json_output
def bisect_command(
    mod: str,
    good: str,
    bad: str,
    libraries: LibraryArguments,
    access: Access,
    *,
    repo: str | None,
    variant: str | None,
    as_json: bool,
) -> int:
    """Find the commit or release at which a mod's verdict changes.

    Nothing is checked out: a repository is read from its objects, along first parents, and only
    commits that touch a file that the verdict rests on are planned. Exit code 0 if a change was
    found, 1 if the verdict is the same at both ends.
    """
    result = bisect(libraries.open(), mod, good, bad, repo=repo, variant=variant, access=access)
    return answers.answer(
        bisected.outcome_data(result, repository=repo),
        bisected.outcome_text(result, good, bad, repository=repo, paint=answers.paint),
        as_json=as_json,
        ok=result.ok,
    )


@click.command(name="upstream")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'.")
@option("--tree TREE", "These trees instead, oldest first.", "trees", multiple=True)
@options.libraries
@options.access
@manner.json_output
def upstream_command(
    mod: str,
    vllm: str | None,
    trees: tuple[str, ...],
    libraries: LibraryArguments,
    access: Access,
    *,
    as_json: bool,
) -> int:
    """Tell which hunks of a mod releases carry themselves, and from which one on it can go.

    Without --vllm and --tree, every release from the first one that the mod's ranges name. Exit
    code 0 if the mod is still needed: some release that its ranges name does not carry it whole;
    1 if it is not.
    """
    result = upstream(libraries.open(), mod, trees, vllm=vllm, access=access)
    return answers.answer(
        carried.rows_data(result.rows, result.dependents),
        carried.rows_text(result.rows, result.dependents, answers.paint),
        as_json=as_json,
        ok=result.needed,
    )
