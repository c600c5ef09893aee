"""``vllm-mods bisect``."""

from __future__ import annotations

import click

from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.grid import bisect
from vllm_mods.report import bisect as report


@click.command(name="bisect")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--repo REPO", "A clone of vLLM's repository [releases, without it].")
@option("--good REV", "A revision or release, the older one.", required=True)
@option("--bad REV", "One with another verdict, the newer one.", required=True)
@option("--variant ID", "Ask for this variant of the mod alone.")
@options.libraries
@manner.offline
@manner.json_output
def command(mod: str, good: str, bad: str, *, repo: str | None, variant: str | None) -> int:
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
        report.outcome_data(found, repository=repo),
        report.outcome_text(found, good, bad, repository=repo, paint=answers.paint),
        ok=found.after is not None,
    )
