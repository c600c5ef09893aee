"""``vllm-mods upstream``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.grid import upstream
from vllm_mods.planning.origins import Origins
from vllm_mods.report import upstream as report
from vllm_mods.site.state_folder import receipt_of


@click.command(name="upstream")
@click.argument("mod", shell_complete=options.complete_mods)
@option("--vllm SPEC", "Only these releases, such as '>=0.19,<0.22'.", "spec")
@option("--tree TREE", "These trees instead, oldest first.", "trees", multiple=True)
@options.libraries
@manner.offline
@manner.json_output
def command(mod: str, spec: str | None, trees: tuple[str, ...]) -> int:
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
        report.rows_data(rows, dependents),
        report.rows_text(rows, dependents, answers.paint),
        ok=upstream.is_needed(rows),
    )
