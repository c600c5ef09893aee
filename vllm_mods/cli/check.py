"""``vllm-mods check``."""

from __future__ import annotations

import click

from vllm_mods.api.advice import hint_of
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.checkpoints.fitting import of_mod
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.cli import answers, ci_form, manner, options, plan_arguments, shown
from vllm_mods.cli.manner import option
from vllm_mods.cli.plan_arguments import PlanArguments
from vllm_mods.formats.pairing import Pairing
from vllm_mods.report import checkpoint, data, text


@click.command(name="check")
@plan_arguments.declared
@options.target_tree
@options.platform
@options.target_in_image
@option(
    "--model MODEL", "Hold the mods against this checkpoint too: a folder, or an id on the Hub."
)
@options.commits
@manner.offline
@options.verify
@options.others
@option("--explain", "List what was not examined too, and why.")
@ci_form.option
@manner.json_output
def command(
    asked: PlanArguments,
    target: str,
    *,
    platform: str | None,
    in_image: str | None,
    model: str | None,
    commits: str | None,
    verify: bool,
    explain: bool,
) -> int:
    """Tell whether mods fit a vLLM tree; change nothing.

    Without MOD and --pairing, all bundled mods that are marked as default.
    Exit code 0 if and only if every mod would end up in the tree, and with --model is for that one.
    """
    form = ci_form.chosen()
    library = options.open_library()
    tree = options.open_tree(
        target,
        workspace=asked.workspace,
        verify=verify,
        platform=platform,
        in_image=in_image,
        commits=commits,
        others=options.beside(asked.others),
    )
    chosen, paired, planned = plan_arguments.ask(library, asked, tree)
    one = None if model is None else open_checkpoint(model, _revision(paired, model))
    fits = [] if one is None else [of_mod(mod, one) for mod in chosen]
    ok = planned.ok and all(fit.meant for fit in fits)
    if form != ci_form.TEXT:
        from vllm_mods.report import ci_forms  # noqa: PLC0415  (10 ms that no person asks for)

        shown.file(ci_forms.render(form, "check", ci_forms.of_plan(planned, fits)))
        return EXIT_OK if ok else EXIT_NO
    answer = data.plan(planned)
    words = [text.plan(planned, answers.paint, explain=explain)]
    if tree.releases is not None:
        answer["tree"]["verified"] = tree.verified
        if tree.verified == "parts":
            words.append(
                "not verified whole: it was read in parts, which --verify holds to the whole"
            )
    if one is not None:
        answer |= {"model": checkpoint.held_data(one, fits), "ok": ok}
        words.append(checkpoint.held_text(one, fits))
    next_step = None if ok else f"vllm-mods suggest {model}"
    if not planned.ok:
        next_step = None if manner.as_json() else hint_of(planned, tree)
    return answers.answer(answer, "\n".join(words), ok=ok, next_step=next_step)


def _revision(paired: Pairing | None, model: str) -> str | None:
    """Return the revision that a pairing has of the model, if that is its own."""
    return paired.revision if paired is not None and paired.model == model else None
