"""``vllm-mods apply``."""

import functools
from typing import Any

import click

from vllm_mods.api.libraries import Chosen, choose
from vllm_mods.applying.carry_out import apply
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Plan
from vllm_mods.cli import answers, options
from vllm_mods.library.catalog import Library
from vllm_mods.report import checked as report
from vllm_mods.report.reply import Reply


@click.command(name="apply")
@options.plan_terms
@options.target_folder
@options.option(
    "--keep-links",
    "Refuse to change a file that has several hard links. By default this tree gets its own copy, and the other links keep the old text.",
)
@options.option("--without-files", "Only list the files that go outside site-packages.")
@options.option("--dry-run", "Print what would change; write nothing.")
@options.json_output
@options.source_date_epoch
def command(
    mods: tuple[str, ...],
    pairing: str | None,
    library: Library,
    target: str,
    *,
    dry_run: bool,
    **given: Any,
) -> Reply:
    """Apply mods to an installed vLLM, all of them or none.

    With neither MOD nor --pairing, apply the bundled mods that `vllm-mods list` marks as [default]. Mods that are already
    applied stay as they are. If a mod does not apply, or the project's vllm-mods.toml (see `add`) forbids it,
    nothing is changed and the exit code is 3. --dry-run has the exit code of a real run. If the variable
    SOURCE_DATE_EPOCH is set, every file that is written gets that modification time.
    """
    chosen = choose(library, mods, pairing, target=target)
    announced = functools.partial(announce, chosen=chosen)
    done = apply(chosen.mods, target, planned=announced, write=not dry_run, **given)
    return report.apply(done, chosen.pairing, answers.paint, dry_run=dry_run)


def announce(planned: Plan, chosen: Chosen) -> None:
    """Print, before anything is written, what is left out and what changes outside of vLLM."""
    options.tell_left_out(planned, chosen)
    for planned_mod in planned.mods if planned.ok else ():
        for finding in planned_mod.findings:
            if finding.code == FindingCode.OUTSIDE:
                answers.note(f"{planned_mod.mod.name}: {finding.message}")
