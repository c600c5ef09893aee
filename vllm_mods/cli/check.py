"""``vllm-mods check``."""

from __future__ import annotations

import click

from vllm_mods.api.apply import hint_of, plan
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.cli import options
from vllm_mods.cli.plan_arguments import choose, told
from vllm_mods.report import data, text
from vllm_mods.trees.open import open_tree


@click.command(name="check")
@options.mods
@options.pairing
@options.target_tree
@options.libraries
@options.workspace
@options.strict_version
@options.only_supported
@options.offline
@click.option("--explain", is_flag=True, help="List what was not examined too, and why.")
@options.json_output
def command(
    mods: tuple[str, ...],
    pairing: str | None,
    target: str,
    libraries: tuple[str, ...],
    workspace: str | None,
    *,
    strict_version: bool,
    only_supported: bool,
    offline: bool,
    explain: bool,
    as_json: bool,
) -> int:
    """Tell whether mods fit a vLLM tree; change nothing.

    Without MOD and --pairing, all bundled mods that are marked as default.
    Exit code 0 if and only if every mod would end up in the tree.
    """
    library = options.open_library(libraries)
    tree = open_tree(
        target, offline=offline, workspace=workspace, progress=options.progress(), note=options.note
    )
    options.close_later(tree)
    paired = None if pairing is None else library.pairing(pairing)
    chosen = choose(library, mods, paired)
    planned = plan(
        chosen,
        tree,
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
    )
    told(planned, chosen, paired)
    if as_json:
        options.print_json(data.plan(planned))
    else:
        click.echo(text.plan(planned, options.paint, explain=explain))
        options.hint(None if planned.ok else hint_of(planned, tree))
    return EXIT_OK if planned.ok else EXIT_NO
