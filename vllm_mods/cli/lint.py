"""``vllm-mods lint``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.cli import answers, ci_form, manner, shown
from vllm_mods.linting import places


@click.command(name="lint")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path())
@ci_form.option
@manner.json_output
def command(paths: tuple[str, ...], *, form: str, as_json: bool) -> int:
    """Name what makes a mod say "done" when it is not.

    PATH is a mod's folder or zip with a run.sh, a script, or a library: its manifests and patches
    are read whole. Nothing is run. Exit code 0 if nothing was found, 1 if something was.
    """
    ci_form.check_one_form(form, as_json=as_json)
    results = [result for path in paths for result in places.lint(path)]
    flaws = [(result.path, flaw) for result in results for flaw in result.flaws]
    if form == ci_form.TEXT:
        answer = {
            "ok": not flaws,
            "paths": [result.path for result in results],
            "findings": [{**flaw._asdict(), "path": path} for path, flaw in flaws],
        }
        lines = [f"{path}:{flaw.line}: {flaw.message} [{flaw.code}]" for path, flaw in flaws]
        answers.answer(answer, "\n".join(lines) or None, as_json=as_json)
    else:
        from vllm_mods.report import ci_forms  # noqa: PLC0415  (10 ms that no person asks for)

        shown.file(ci_forms.render(form, "lint", ci_forms.of_lint(results)))
    if not as_json:
        noun = "finding" if len(flaws) == 1 else "findings"
        click.echo(f"{len(results)} looked at, {len(flaws) or 'no'} {noun}", err=True)
    return EXIT_NO if flaws else EXIT_OK
