"""``vllm-mods check``."""

from __future__ import annotations

import click

from vllm_mods.api.access import Access
from vllm_mods.api.check import check
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.cli import answers, ci_form, manner, options, plan_arguments, shown
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.cli.plan_arguments import PlanArguments
from vllm_mods.formats.pairing import Pairing
from vllm_mods.report import checked as report


@click.command(name="check")
@plan_arguments.declared
@options.target_tree
@options.platform
@options.target_in_image
@option(
    "--model MODEL", "Hold the mods against this checkpoint too: a folder, or an id on the Hub."
)
@options.access_to_commits
@options.verify
@options.others
@option("--explain", "List what was not examined too, and why.")
@ci_form.option
@manner.json_output
def command(
    asked: PlanArguments,
    libraries: LibraryArguments,
    access: Access,
    target: str,
    *,
    platform: str | None,
    in_image: str | None,
    model: str | None,
    verify: bool,
    explain: bool,
    form: str,
    as_json: bool,
) -> int:
    """Tell whether mods fit a vLLM tree; change nothing.

    Without MOD and --pairing, all bundled mods that are marked as default.
    Exit code 0 if and only if every mod would end up in the tree, and with --model is for that one.
    """
    ci_form.check_one_form(form, as_json=as_json)
    chosen, tree = plan_arguments.open_both(
        asked, libraries, access, target, verify=verify, platform=platform, in_image=in_image
    )
    result = check(
        chosen.mods,
        tree,
        model=model,
        revision=_revision(chosen.pairing, model),
        workspace=asked.workspace,
        strict_version=asked.strict_version,
        only_supported=asked.only_supported,
        base=asked.base and access.open(asked.base),
    )
    plan_arguments.announce(result.plan, chosen)
    if form != ci_form.TEXT:
        from vllm_mods.report import ci_forms  # noqa: PLC0415  (10 ms that no person asks for)

        shown.file(
            ci_forms.render(
                form,
                "check",
                ci_forms.of_plan(result.plan, result.model.mods if result.model else ()),
            )
        )
        return EXIT_OK if result.ok else EXIT_NO
    return answers.answer(
        report.data(result),
        report.text(result, answers.paint, explain=explain),
        as_json=as_json,
        ok=result.ok,
        next_step=None if as_json else result.hint,
    )


def _revision(paired: Pairing | None, model: str | None) -> str | None:
    """Return the revision that a pairing has of the model, if that is its own."""
    return paired.revision if paired is not None and paired.model == model else None
