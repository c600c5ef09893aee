"""``vllm-mods upstream``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Tree
from vllm_mods.cli import options
from vllm_mods.grid import upstream
from vllm_mods.planning.origins import Origins
from vllm_mods.report import upstream as report
from vllm_mods.site.state_folder import receipt_of
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.release import Releases


@click.command(name="upstream")
@click.argument("mod", shell_complete=options.complete_mods)
@click.option("--vllm", "spec", metavar="SPEC", help="Only these releases, such as '>=0.19,<0.22'.")
@click.option(
    "--tree", "trees", multiple=True, metavar="TREE", help="These trees instead, oldest first."
)
@options.libraries
@options.offline
@options.json_output
def command(
    mod: str,
    spec: str | None,
    trees: tuple[str, ...],
    libraries: tuple[str, ...],
    *,
    offline: bool,
    as_json: bool,
) -> int:
    """Tell which hunks of a mod releases carry themselves, and from which one on it can go.

    Without --vllm and --tree, every release from the first one that the mod's ranges name. Exit
    code 0 if the mod is still needed: some release that its ranges name does not carry it whole;
    1 if it is not.
    """
    library = options.open_library(libraries)
    mods = library.select((mod,))
    releases = Releases(offline=offline, progress=options.progress(), note=options.note)
    specs = trees or upstream.releases(mods[-1], releases.files(), spec)
    if not specs:
        raise UsageError(f"no release is in {spec}", hint="such as --vllm '>=0.19'")

    def opener(name: str) -> Tree:
        if name.startswith("pypi:"):
            return releases.open(name.removeprefix("pypi:"))
        tree = open_tree(name, offline=offline)
        options.close_later(tree)
        return tree

    rows = tuple(upstream.rows(mods, specs, opener, receipt_of, Origins(releases)))
    dependents = upstream.dependents(library, mod)
    if as_json:
        options.print_json(report.rows_data(rows, dependents))
    else:
        click.echo(report.rows_text(rows, dependents, options.paint))
    return EXIT_OK if upstream.is_needed(rows) else EXIT_NO
