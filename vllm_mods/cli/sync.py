"""``vllm-mods sync``."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from vllm_mods.api import apply, exactly
from vllm_mods.api.exactly import Exactly
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.apply import announced, in_words, source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.diagnosis import search
from vllm_mods.formats.project import ProjectFile, SyncTarget
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.report import data, text
from vllm_mods.sharing import changing, locking
from vllm_mods.sharing.editing import DEFAULT


@click.command(name="sync")
@click.argument("name", required=False, metavar="[TARGET]")
@option("--target DIR", "The vLLM [the target's path, else the active environment's].")
@option("--check", "Write nothing; exit code 1 if the vLLM holds anything else.")
@option("--fetch", "Only have the libraries, as they are locked, on this machine.")
@options.workspace
@manner.json_output
def command(
    name: str | None, target: str | None, workspace: str | None, *, check: bool, fetch: bool
) -> int:
    """Make a vLLM hold exactly the mods that vllm-mods.toml names for TARGET, as they are locked.

    Libraries are fetched as vllm-mods.lock has them, or not at all. What the file does not name is taken
    out, what is missing put in, what is another version renewed: whole or not at all. Where
    nothing is to be done, nothing is written. With SOURCE_DATE_EPOCH set, every file written
    has that modification time.
    """
    project = changing.there()
    shared = locking.shared(project, fetching=True)
    if fetch:
        here = list(project.libraries)
        return answers.answer(
            {"project": project.where, "libraries": here},
            f"here, as they are locked: {', '.join(here) or 'no library is named'}",
        )
    wanted = chosen(project, name)
    library = Library(shared=shared)
    paired = None if wanted.pairing is None else library.pairing(wanted.pairing)
    names = (*(() if paired is None else library.mods_of(paired)), *wanted.mods)
    mods = library.select(names)
    if wanted.pairing is not None:
        trust.demand_pairing(library, wanted.pairing)
    terms = apply.Terms(
        workspace,
        planned=lambda planned: announced(planned, mods, paired),
        source_date_epoch=source_date_epoch(),
        write=not check,
    )
    place = target or _place(project, wanted) or options.active_target()
    try:
        done = exactly.hold(mods, place, terms)
    except Refused as error:
        if error.plan is None or manner.as_json():
            raise
        raise in_words(error, error.plan) from error
    for note in done.notes:
        answers.note(note)
    lines = [*_lines(done, check=check), *text.serve_arguments(done.plan, done.templates)]
    code = answers.answer(
        _data(project, wanted, done, check=check),
        "\n".join(lines),
        ok=done.settled or not check,
    )
    if check and not done.settled:
        words = [*([name] if name else ()), *(("--target", target) if target else ())]
        answers.hint(shlex.join(["vllm-mods", "sync", *words]))
    return code


def chosen(project: ProjectFile, name: str | None) -> SyncTarget:
    """Return the target that is named; else the default one, or the only one. Raises ``UsageError``."""
    targets = {one.name: one for one in project.targets}
    if name is None and len(targets) == 1:
        return project.targets[0]
    found = targets.get(name or DEFAULT)
    if found is None:
        there = f"it has {', '.join(targets)}" if targets else "it has none"
        raise UsageError(
            f"{project.where} has no target named `{name or DEFAULT}`: {there}",
            hint=f"vllm-mods sync {next(iter(targets))}"
            if targets
            else 'write what is to be in: [targets.default], mods = ["LIBRARY/MOD"]',
        )
    return found


def _place(project: ProjectFile, wanted: SyncTarget) -> str | None:
    """Return the vLLM of a target: its folder, or the one in the environment that it names."""
    if wanted.path is None:
        return os.environ.get(options.TARGET)
    place = os.path.join(os.path.dirname(project.where), os.path.expanduser(wanted.path))
    found = list(search.in_prefix(place))
    if len(found) > 1:
        raise UsageError(
            f"{place} has several vLLMs: {', '.join(found)}", hint="name one as `path`"
        )
    return found[0] if found else place


def _data(
    project: ProjectFile, wanted: SyncTarget, done: Exactly, *, check: bool
) -> dict[str, Any]:
    return {
        **data.plan(done.plan),
        "ok": done.settled or not check,
        "project": project.where,
        "target": wanted.name,
        "settled": done.settled,
        "out": [data.applied(one) for one in done.out],
        "into": [data.applied(one) for one in done.into],
        "renewed": [data.applied(one) for one in done.renewed],
        "changed": list(done.changed),
        "check": check,
    }


def _lines(done: Exactly, *, check: bool) -> list[str]:
    lines = [text.tree_name(done.plan.version, done.target)]
    told = {
        "goes out" if check else "is out": done.out,
        "goes in" if check else "is in": done.into,
        "is another version" if check else "is renewed": done.renewed,
    }
    lines += [f"  {one.name} {one.version} {what}" for what, mods in told.items() for one in mods]
    if done.settled:
        names = ", ".join(f"{one.mod.name} {one.mod.version}" for one in done.plan.mods)
        return [*lines, f"it holds exactly what it should: {names or 'no mods'}"]
    if not any((done.changed, *told.values())):
        lines.append("  the receipt has its mods in another order")
    return [*lines, text.done(done.changed, dry_run=check) if done.changed else "no file changes"]
