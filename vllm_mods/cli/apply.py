"""``vllm-mods apply``."""

from __future__ import annotations

import functools
import os

import click

from vllm_mods.api.libraries import Chosen, choose
from vllm_mods.api.plan import as_tree
from vllm_mods.applying.carry_out import Terms, carry_out
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Plan
from vllm_mods.cli import answers, manner, options, plan_arguments
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.cli.plan_arguments import PlanArguments
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
@manner.json_output
def command(
    asked: PlanArguments,
    libraries: LibraryArguments,
    target: str,
    *,
    keep_links: bool,
    without_files: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put mods into an installed vLLM, whole or not at all.

    Without MOD and --pairing, all bundled mods that are marked as default. Mods that are in already
    are left as they are. If any mod does not fit, or vllm-mods.toml does not trust it, nothing is
    changed (exit code 3). With --dry-run the exit code is the one that there would be.
    With SOURCE_DATE_EPOCH set, every file written has that modification time.
    """
    epoch = source_date_epoch()
    chosen = choose(libraries.open(), asked.mods, asked.pairing, target=target)
    terms = Terms(
        workspace=asked.workspace,
        strict_version=asked.strict_version,
        only_supported=asked.only_supported,
        keep_links=keep_links,
        planned=lambda planned: announce(planned, chosen),
        without_files=without_files,
        source_date_epoch=epoch,
        write=not dry_run,
        base=as_tree(asked.base) if asked.base else None,
    )
    try:
        done = carry_out(chosen.mods, target, terms)
    except Refused as error:
        if error.plan is None:
            raise
        if as_json:
            problem = data.error(error.code, error.message, error.hint, error.exit_code)
            answers.print_json({**data.plan(error.plan), "changed": [], **problem})
        raise in_words(error, error.plan) from error
    for note in done.notes:
        answers.note(note)
    answer = {**data.plan(done.plan), "changed": list(done.changed)}
    lines = [text.plan(done.plan, answers.paint), text.done(done.changed, dry_run=dry_run)]
    if chosen.pairing is None:
        lines += text.serve_arguments(done.plan, done.templates)
    else:
        answer["serve"] = done.serve_script(chosen.pairing)
        lines.append(f"serve with (pairing {asked.pairing}):\n{answer['serve']}")
    return answers.answer({**answer, "dry_run": dry_run}, "\n".join(lines), as_json=as_json)


def announce(planned: Plan, chosen: Chosen) -> None:
    """Print, before anything is written, what is left out and what changes outside of vLLM."""
    plan_arguments.announce(planned, chosen)
    for one in planned.mods if planned.ok else ():
        for finding in one.findings:
            if finding.code == FindingCode.OUTSIDE:
                answers.note(f"{one.mod.name}: {finding.message}")


def in_words(error: Refused, planned: Plan) -> Refused:
    """Return a refusal whose message has its plan in words too."""
    paint = functools.partial(answers.paint, err=True)
    return Refused(text.refusal(planned, error.message, paint), hint=error.hint, plan=planned)


def source_date_epoch() -> int | None:
    """Read SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/)."""
    value = os.environ.get("SOURCE_DATE_EPOCH")
    if value is None or value == "":
        return None
    if not value.isascii() or not value.isdigit():
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {value!r}, and it must be seconds since 1970",
            hint="SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)",
        )
    return int(value)
