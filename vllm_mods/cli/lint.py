"""``vllm-mods lint``."""

from __future__ import annotations

import click

from vllm_mods.cli import ci_form
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.ci_form import CiReply
from vllm_mods.linting import places


@click.command(name="lint")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@ci_form.output
def command(paths: tuple[str, ...]) -> CiReply:
    """Name what makes a mod say "done" when it is not.

    PATH is a mod's folder or zip with a run.sh, a script, or a library: its manifests and patches
    are read whole. Nothing is run. Exit code 0 if nothing was found, 1 if something was.
    """
    results = [result for path in paths for result in places.lint(path)]
    flaws = [(result.path, flaw) for result in results for flaw in result.flaws]
    data = {
        "ok": not flaws,
        "paths": [result.path for result in results],
        "findings": [{**flaw._asdict(), "path": path} for path, flaw in flaws],
    }
    lines = [f"{path}:{flaw.line}: {flaw.message} [{flaw.code}]" for path, flaw in flaws]
    noun = "finding" if len(flaws) == 1 else "findings"

    def show(words: str) -> None:
        if words:
            click.echo(words)
        click.echo(f"{len(results)} looked at, {len(flaws) or 'no'} {noun}", err=True)

    return Reply(data, "\n".join(lines), ok=not flaws, show=show), results
