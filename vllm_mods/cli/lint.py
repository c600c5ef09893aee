"""``vllm-mods lint``."""

from __future__ import annotations

import click

from vllm_mods.cli import ci_form
from vllm_mods.linting import places
from vllm_mods.report import text
from vllm_mods.report.reply import Reply


@click.command(name="lint")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@ci_form.output
def command(paths: tuple[str, ...]) -> Reply:
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
    stderr = (
        f"{len(results)} looked at, {text.counted(len(flaws), 'finding') if flaws else 'no findings'}",
    )
    return Reply(data, "\n".join(lines) or None, not flaws, stderr=stderr, judged=results)
