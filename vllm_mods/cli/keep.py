"""``vllm-mods keep``."""

from __future__ import annotations

from typing import Any

import click

from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option


@click.command(name="keep")
@click.argument("mods", metavar="[MOD]...", nargs=-1)
@option("--library DIR", "A library in a git repository.", required=True)
@option("--since RELEASE", "Look at newer ones [the newest of mod.lock].")
@option("--vllm SPEC", "Look at these releases only.")
@option("--pre", "Pre-releases too.")
@option("--commits REPO", "The newest commit of a clone of vLLM's repository too.")
@option("--offline", "Use only what is cached; open no connection.")
@manner.json_flag
def command(
    library: str, *, commits: str | None, offline: bool, as_json: bool, **given: Any
) -> int:
    """Keep a library up with vLLM's releases, on branches of its repository.

    For each mod and each release that is new to it: where a variant goes in as it is, its range is
    widened; where none does, it is ported; where the release carries the change, the range ends. Each
    is one commit on a branch vllm-mods/MOD/RELEASE, which begins where the one of the release before
    ends, with the text for a pull request as its message. A branch that is there is left alone.
    Nothing is checked out and nothing pushed. Exit code 0, or 1 where something is left to a person.
    """
    from vllm_mods.api.keep import keep  # noqa: PLC0415  (GitPython: 100 ms)
    from vllm_mods.report import keep as report  # noqa: PLC0415

    access = options.open_access(offline=offline, commits=commits)
    releases = []
    for release in keep(library, message=report.message, access=access, **given):
        releases.append(release)
        if not as_json:
            click.echo(report.line(release))
    return answers.print_reply(report.kept(library, releases), as_json=as_json)
