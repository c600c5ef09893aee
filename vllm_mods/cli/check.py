"""``vllm-mods check`` and ``diff``: whether mods fit a vLLM tree, and what they would change in it."""

from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import choose, other_packages
from vllm_mods.api.plan import CheckResult, check
from vllm_mods.cli import answers, options
from vllm_mods.library.catalog import Library
from vllm_mods.report import checked as report
from vllm_mods.report.reply import Reply


@click.command(name="check")
@options.plan_terms
@options.target_tree
@options.platform
@options.target_in_image
@options.option(
    "--model MODEL",
    "Also check that the mods are meant for this model: a folder, or an id on the Hub.",
)
@options.access_to_commits
@options.verify
@options.others
@options.option("--explain", "Also list what was not checked, and why.")
@options.form(
    "How to print it: for a person, as annotations for GitHub, or as SARIF.",
    ("text", "github", "sarif"),
)
@options.json_output
def check_command(*, explain: bool, form: str, **given: Any) -> Reply:
    """Check whether mods apply to a vLLM tree; change nothing.

    MOD is the name of a mod in a library, the folder of a mod (./mods/fix), or a patch (fix.patch). With
    neither MOD nor --pairing: all bundled mods that `vllm-mods list` marks as [default]. Exit code 0 if every
    mod applies and, with --model, is meant for that model.
    """
    result = _check(**given)
    reply = report.check(result, answers.paint, explain=explain)
    if form == "text":
        return reply
    from vllm_mods.report import annotations, sarif  # noqa: PLC0415  (10 ms)

    write = annotations.workflow_commands if form == "github" else sarif.render
    return Reply(reply.data, write(annotations.of_check(result)), reply.ok, is_file=True)


@click.command(name="diff")
@options.plan_terms
@options.target_tree
@options.access
@options.others
@options.json_output
def diff_command(**given: Any) -> Reply:
    """Show what mods would change in a vLLM tree, as one diff; change nothing.

    `git apply` and `patch -p1` accept the diff in the folder that contains vllm/. With neither MOD
    nor --pairing: all bundled mods that `vllm-mods list` marks as [default]. Exit code 1, and no diff, if a
    mod does not apply.
    """
    return report.diff(_check(**given), answers.paint)


def _check(
    mods: tuple[str, ...],
    pairing: str | None,
    library: Library,
    access: Access,
    *,
    target: str,
    others: Sequence[str],
    workspace: str | None,
    base: str | None,
    strict_version: bool,
    only_supported: bool,
    model: str | None = None,
    **opening: Any,
) -> CheckResult:
    """Open the tree, read the mods and hold them against it; print on stderr what is left out."""
    tree = access.open(target, workspace=workspace, others=other_packages(others), **opening)
    chosen = choose(library, mods, pairing)
    other_packages(others, chosen.mods)
    paired = chosen.pairing
    result = check(
        chosen.mods,
        tree,
        model=model,
        revision=paired.revision if paired is not None and paired.model == model else None,
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        base=None if base is None else access.open(base),
    )
    options.tell_left_out(result.plan, chosen)
    return result
