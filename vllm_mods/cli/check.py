"""``vllm-mods check``."""

from __future__ import annotations

import click

from vllm_mods.api.advice import hint_of
from vllm_mods.api.apply import plan
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.cli import options
from vllm_mods.cli.plan_arguments import choose, told
from vllm_mods.report import data, text


@click.command(name="check")
@options.mods
@options.pairing
@options.target_tree
@options.libraries
@options.workspace
@options.strict_version
@options.only_supported
@options.offline
@options.verify
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
    verify: bool,
    explain: bool,
    as_json: bool,
) -> int:
    """Tell whether mods fit a vLLM tree; change nothing.

    Without MOD and --pairing, all bundled mods that are marked as default.
    Exit code 0 if and only if every mod would end up in the tree.
    """
    library = options.open_library(libraries)
    tree = options.open_tree(target, offline=offline, workspace=workspace, verify=verify)
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
    verified: str | None = getattr(tree, "verified", None)
    if as_json:
        answer = data.plan(planned)
        if hasattr(tree, "verified"):
            answer["tree"]["verified"] = verified
        options.print_json(answer)
    else:
        click.echo(text.plan(planned, options.paint, explain=explain))
        if verified == "parts":
            click.echo(
                "not verified whole: it was read in parts, which --verify holds to the whole"
            )
        options.hint(None if planned.ok else hint_of(planned, tree))
    return EXIT_OK if planned.ok else EXIT_NO
