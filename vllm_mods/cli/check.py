"""``vllm-mods check``."""

from __future__ import annotations

import click

from vllm_mods.api.advice import hint_of
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.checkpoints.fitting import of_mod
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.cli import ci_form, options, shown
from vllm_mods.cli.plan_arguments import ask
from vllm_mods.formats.pairing import Pairing
from vllm_mods.report import checkpoint, data, text


@click.command(name="check")
@options.mods
@options.pairing
@options.target_tree
@options.platform
@options.target_in_image
@options.libraries
@options.workspace
@options.strict_version
@options.only_supported
@click.option(
    "--model",
    metavar="MODEL",
    help="Hold the mods against this checkpoint too: a folder, or an id on the Hub.",
)
@options.commits
@options.offline
@options.verify
@options.others
@click.option("--explain", is_flag=True, help="List what was not examined too, and why.")
@ci_form.option
@options.json_output
def command(
    mods: tuple[str, ...],
    pairing: str | None,
    target: str,
    libraries: tuple[str, ...],
    workspace: str | None,
    *,
    platform: str | None,
    in_image: str | None,
    model: str | None,
    commits: str | None,
    strict_version: bool,
    only_supported: bool,
    offline: bool,
    verify: bool,
    others: tuple[str, ...],
    explain: bool,
    form: str,
    as_json: bool,
) -> int:
    """Tell whether mods fit a vLLM tree; change nothing.

    Without MOD and --pairing, all bundled mods that are marked as default.
    Exit code 0 if and only if every mod would end up in the tree, and with --model is for that one.
    """
    ci_form.alone(form, as_json=as_json)
    library = options.open_library(libraries)
    tree = options.open_tree(
        target,
        offline=offline,
        workspace=workspace,
        verify=verify,
        platform=platform,
        in_image=in_image,
        commits=commits,
        others=options.beside(others),
    )
    chosen, paired, planned = ask(
        library,
        mods,
        pairing,
        tree,
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        others=others,
    )
    one = None if model is None else open_checkpoint(model, _revision(paired, model))
    fits = [] if one is None else [of_mod(mod, one) for mod in chosen]
    ok = planned.ok and all(fit.meant for fit in fits)
    verified: str | None = getattr(tree, "verified", None)
    if as_json:
        answer = data.plan(planned)
        if hasattr(tree, "verified"):
            answer["tree"]["verified"] = verified
        if one is not None:
            answer |= {"model": checkpoint.held_data(one, fits), "ok": ok}
        options.print_json(answer)
    elif form != ci_form.TEXT:
        from vllm_mods.report import ci_forms  # noqa: PLC0415  (10 ms that no person asks for)

        shown.file(ci_forms.render(form, "check", ci_forms.of_plan(planned, fits)))
    else:
        click.echo(text.plan(planned, options.paint, explain=explain))
        if verified == "parts":
            click.echo(
                "not verified whole: it was read in parts, which --verify holds to the whole"
            )
        if one is not None:
            click.echo(checkpoint.held_text(one, fits))
        options.hint(
            hint_of(planned, tree)
            if not planned.ok
            else None
            if ok
            else f"vllm-mods suggest {model}"
        )
    return EXIT_OK if ok else EXIT_NO


def _revision(paired: Pairing | None, model: str) -> str | None:
    """Return the revision that a pairing has of the model, if that is its own."""
    return paired.revision if paired is not None and paired.model == model else None
