"""``vllm-mods apply``."""

from __future__ import annotations

import functools
from typing import Any

import click

from vllm_mods.api.apply import apply
from vllm_mods.api.libraries import Chosen, choose
from vllm_mods.api.plan import as_tree
from vllm_mods.base.errors import Refused
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Plan
from vllm_mods.cli import answers, manner, options, plan_arguments
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.manner import option
from vllm_mods.cli.plan_arguments import PlanArguments
from vllm_mods.library.catalog import Library
from vllm_mods.report import data, text


@click.command(name="apply")
@plan_arguments.declared
@options.target_folder
@option(
    "--keep-links",
    "Refuse to replace a hard-linked file, whose other names would stay as they are.",
)
@option("--without-files", "Leave out, and name, the files of mods that only an image gets.")
@option("--dry-run", "Say what would be done, and write nothing.")
@manner.json_flag
@options.source_date_epoch
def command(
    asked: PlanArguments,
    library: Library,
    target: str,
    *,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Put mods into an installed vLLM, whole or not at all.

    Without MOD and --pairing, all bundled mods that are marked as default. Mods that are in already
    are left as they are. If any mod does not fit, or vllm-mods.toml does not trust it, nothing is
    changed (exit code 3). With --dry-run the exit code is the one that there would be.
    With SOURCE_DATE_EPOCH set, every file written has that modification time.
    """
    chosen = choose(library, asked.mods, asked.pairing, target=target)
    announced = functools.partial(announce, chosen=chosen)
    terms = {**asked.terms(as_tree), **given}
    try:
        done = apply(chosen.mods, target, planned=announced, write=not dry_run, **terms)
    except Refused as error:
        raise tell_plan(error, as_json=as_json) from error
    for note in done.notes:
        answers.note(note)
    answer = {**data.plan(done.plan), "changed": done.changed}
    lines = [text.plan(done.plan, answers.paint), text.done(done.changed, dry_run=dry_run)]
    if chosen.pairing is None:
        lines += text.serve_arguments(done.plan, done.templates)
    else:
        answer["serve"] = done.serve_script(chosen.pairing)
        lines.append(f"serve with (pairing {asked.pairing}):\n{answer['serve']}")
    return Reply({**answer, "dry_run": dry_run}, "\n".join(lines)).print(as_json=as_json)


def announce(planned: Plan, chosen: Chosen) -> None:
    """Print, before anything is written, what is left out and what changes outside of vLLM."""
    plan_arguments.announce(planned, chosen)
    for planned_mod in planned.mods if planned.ok else ():
        for finding in planned_mod.findings:
            if finding.code == FindingCode.OUTSIDE:
                answers.note(f"{planned_mod.mod.name}: {finding.message}")


def tell_plan(error: Refused, *, as_json: bool) -> Refused:
    """Print the plan of a refusal as JSON, if asked for, and return the refusal with that plan in words."""
    planned = error.plan
    if planned is None:
        return error
    if as_json:
        problem = data.error(error.code, error.message, error.hint, error.exit_code)
        answers.print_json({**data.plan(planned), "changed": [], **problem})
    paint = functools.partial(answers.paint, err=True)
    return Refused(text.refusal(planned, error.message, paint), hint=error.hint, plan=planned)
