"""``vllm-mods bisect`` and ``upstream``: when a mod's verdict changed, and when it can go."""

from __future__ import annotations

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.matrices import bisect, upstream
from vllm_mods.planning.origins import Origins
from vllm_mods.report import bisect as bisected
from vllm_mods.report import upstream as carried
from vllm_mods.site.state_folder import receipt_of


@click.command(name="bisect")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--repo REPO", "A clone of vLLM's repository [releases, without it].")
@option("--good REV", "A revision or release, the older one.", required=True)
@option("--bad REV", "One with another verdict, the newer one.", required=True)
@option("--variant ID", "Ask for this variant of the mod alone.")
@options.libraries
@manner.offline
@manner.json_output
def bisect_command(mod: str, good: str, bad: str, *, repo: str | None, variant: str | None) -> int:
    """Find the commit or release at which a mod's verdict changes.

    Nothing is checked out: a repository is read from its objects, along first parents, and only
    commits that touch a file that the verdict rests on are planned. Exit code 0 if a change was
    found, 1 if the verdict is the same at both ends.
    """
    mods = options.open_library().select((mod,))
    if variant is not None:
        mods = (*mods[:-1], bisect.narrowed(mods[-1], variant))
    if repo is not None:
        from vllm_mods.trees.git import Repository  # noqa: PLC0415  (raises where there is no git)

        found = bisect.over_commits(mods, Repository(repo), good, bad)
    else:
        releases = options.open_releases()
        found = bisect.over_releases(
            mods, releases.files(), lambda name: options.open_one(name, releases), good, bad
        )
    return answers.answer(
        bisected.outcome_data(found, repository=repo),
        bisected.outcome_text(found, good, bad, repository=repo, paint=answers.paint),
        ok=found.after is not None,
    )


@click.command(name="upstream")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'.", "spec")
@option("--tree TREE", "These trees instead, oldest first.", "trees", multiple=True)
@options.libraries
@manner.offline
@manner.json_output
def upstream_command(mod: str, spec: str | None, trees: tuple[str, ...]) -> int:
    """Tell which hunks of a mod releases carry themselves, and from which one on it can go.

    Without --vllm and --tree, every release from the first one that the mod's ranges name. Exit
    code 0 if the mod is still needed: some release that its ranges name does not carry it whole;
    1 if it is not.
    """
    library = options.open_library()
    mods = library.select((mod,))
    releases = options.open_releases()
    specs = trees or upstream.releases(mods[-1], releases.files(), spec)
    if not specs:
        raise UsageError(f"no release is in {spec}", hint="such as --vllm '>=0.19'")

    rows = tuple(
        upstream.rows(
            mods,
            specs,
            lambda name: options.open_one(name, releases),
            receipt_of,
            Origins(releases),
        )
    )
    dependents = upstream.dependents(library, mod)
    return answers.answer(
        carried.rows_data(rows, dependents),
        carried.rows_text(rows, dependents, answers.paint),
        ok=upstream.is_needed(rows),
    )
