"""``vllm-mods keep``."""

from __future__ import annotations

import os

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.matrices.choose import choose_releases


@click.command(name="keep")
@click.argument("mods", metavar="[MOD]...", nargs=-1)
@option("--library DIR", "A library in a git repository.", required=True)
@option("--since RELEASE", "Look at newer ones [the newest of mod.lock].")
@option("--vllm SPEC", "Look at these releases only.", "spec")
@option("--pre", "Pre-releases too.")
@option("--test COMMAND", "Run it in a copy for each branch; it has VLLM_MODS_RELEASE.")
@options.history
@option("--commits REPO", "The newest commit of a clone of vLLM's repository too.")
@manner.offline
@manner.json_output
def command(
    mods: tuple[str, ...],
    library: str,
    since: str | None,
    spec: str | None,
    test: str | None,
    *,
    history: str | None,
    commits: str | None,
    pre: bool,
) -> int:
    """Keep a library up with vLLM's releases, on branches of its repository.

    For each mod and each release that is new to it: where a variant goes in as it is, its range is
    widened; where none does, it is ported; where the release carries the change, the range ends. Each
    is one commit on a branch vllm-mods/MOD/RELEASE, which begins where the one of the release before
    ends, with the text for a pull request as its message. A branch that is there is left alone.
    With --history the text names the commit of vLLM's that a mod met. Nothing is checked out and nothing pushed. Exit code 0, or 1 where something is left to a person.
    """
    from vllm_mods.keeping import run  # noqa: PLC0415  (GitPython: 100 ms)
    from vllm_mods.library.catalog import Library, root_of  # noqa: PLC0415
    from vllm_mods.report import keep as report  # noqa: PLC0415

    there = Library(library)
    place = os.path.abspath(library)
    loaded = [there.load(name) for name in there.names()]
    own = {mod.name: mod for mod in loaded if root_of(mod) == place}
    unknown = [name for name in mods if name not in own]
    if unknown:
        raise UsageError(
            f"{library} has no mod {', '.join(unknown)}", hint=f"vllm-mods list --library {library}"
        )
    releases = options.open_releases(commits)
    specs = choose_releases((), releases.files(), spec if spec is not None else ">=0", pre=pre)
    named = [one.removeprefix("pypi:") for one in specs if not one.endswith(".whl")]
    upstream, builds = options.upstream(history), options.upstream(commits)
    named += [] if builds is None else filter(None, [builds.build()])
    found = []
    for name in mods or own:
        wanted = run.new_to(own[name], named, since)
        for one in run.run(
            library, run.Keeping(name, report.message, test, upstream), wanted, releases
        ):
            found.append(one)
            if not manner.as_json():
                click.echo(report.line(one))
    return answers.answer(
        report.data(library, found),
        None if found else "no release is new to any mod: nothing to do",
        ok=not any(one.kept.left for one in found),
    )
