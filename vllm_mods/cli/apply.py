"""``vllm-mods apply``."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api import apply
from vllm_mods.api.outcomes import Applied
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import Mod, Plan
from vllm_mods.cli import answers, manner, options, plan_arguments
from vllm_mods.cli.manner import option
from vllm_mods.cli.plan_arguments import PlanArguments, choose, told
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import taken_over
from vllm_mods.library import trust
from vllm_mods.planning import outside
from vllm_mods.report import data, text


@click.command(name="apply")
@plan_arguments.declared
@options.target_folder
@option(
    "--keep-links",
    "Refuse to replace a hard-linked file, whose other names would stay as they are.",
)
@option(
    "--break-links", "Replace a hard-linked file by one of this tree's own: what is done anyway."
)
@option("--without-files", "Leave out, and name, the files of mods that only an image gets.")
@option("--dry-run", "Say what would be done, and write nothing.")
@manner.json_output
def command(
    asked: PlanArguments,
    target: str,
    *,
    keep_links: bool,
    break_links: bool,
    without_files: bool,
    dry_run: bool,
) -> int:
    """Put mods into an installed vLLM, whole or not at all.

    Without MOD and --pairing, all bundled mods that are marked as default. Mods that are in already
    are left as they are. If any mod does not fit, or vllm-mods.toml does not trust it, nothing is
    changed (exit code 3). With --dry-run the exit code is the one that there would be.
    With SOURCE_DATE_EPOCH set, every file written has that modification time.
    """
    if keep_links and break_links:
        raise UsageError(
            "--keep-links and --break-links say the contrary", hint="leave one of them out"
        )
    epoch = source_date_epoch()
    library = options.open_library()
    paired = None if asked.pairing is None else library.pairing(asked.pairing)
    unknown = [name for name in asked.mods if not library.has(name)]
    # as they went in: after a new installation `status` names them, whatever library they came from
    kept = apply.kept_in(target, unknown) if unknown and not library.pinned else ()
    named = [name for name in asked.mods if name not in {mod.name for mod in kept}]
    chosen = (*(choose(library, named, paired) if named or paired or not kept else ()), *kept)
    if asked.pairing is not None:
        trust.demand_pairing(library, asked.pairing)
    terms = apply.Terms(
        workspace=asked.workspace,
        strict_version=asked.strict_version,
        only_supported=asked.only_supported,
        keep_links=keep_links,
        planned=lambda planned: announced(planned, chosen, paired),
        without_files=without_files,
        source_date_epoch=epoch,
        write=not dry_run,
    )
    try:
        done = apply.carried_out(chosen, target, terms)
    except Refused as error:
        if error.plan is None:
            raise
        if manner.as_json():
            said = data.error(error.code, error.message, error.hint, error.exit_code)
            answers.print_json({**data_of(error.plan, ()), **said})
        raise in_words(error, error.plan) from error
    for note in done.notes:
        answers.note(note)
    script = None if paired is None else serve_script(paired, done)
    words = [text.plan(done.plan, answers.paint), text.done(done.changed, dry_run=dry_run)]
    if script is None:
        words += text.serve_arguments(done.plan, done.templates)
    else:
        words.append(f"serve with (pairing {asked.pairing}):\n{script}")
    serve = {} if script is None else {"serve": script}
    answer = {**data_of(done.plan, done.changed), **serve, "dry_run": dry_run}
    return answers.answer(answer, "\n".join(words))


def announced(planned: Plan, mods: Sequence[Mod], paired: Pairing | None) -> None:
    """Say, before anything is written, what is left out and what changes outside of vLLM."""
    told(planned, mods, paired)
    for one in planned.mods if planned.ok else ():
        for found in one.findings:
            if found.code == outside.DECLARED:
                answers.note(f"{one.mod.name}: {found.message}")


def in_words(error: Refused, planned: Plan) -> Refused:
    """Return a refusal whose message has its plan in words too."""
    paint = functools.partial(answers.paint, err=True)
    return Refused(text.refusal(planned, error.message, paint), hint=error.hint, plan=planned)


def serve_script(pairing: Pairing, done: Applied) -> str:
    """Return the serve command of a pairing, with what its mods bring and its template where it lies in this tree."""
    files = [
        template.file
        for one in done.plan.mods
        for template in (one.variant.templates if one.variant else ())
    ]
    served = taken_over(pairing, [one.mod for one in done.plan.mods]).pairing
    return pairings.serve_script(
        served, {file: os.path.join(done.templates, file) for file in files}
    )


def data_of(planned: Plan, changed: Sequence[str]) -> dict[str, Any]:
    """Return the answer of ``check``, and the paths that were changed."""
    return {**data.plan(planned), "changed": list(changed)}


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
