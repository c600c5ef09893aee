"""``vllm-mods sync``."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from vllm_mods.api.sync import Synced, fetch, sync
from vllm_mods.base.errors import Refused
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.apply import announce, in_words, source_date_epoch
from vllm_mods.cli.manner import option
from vllm_mods.report import data, text


@click.command(name="sync")
@click.argument("name", required=False, metavar="[TARGET]")
@option("--target DIR", "The vLLM [the target's path, else the active environment's].")
@option("--check", "Write nothing; exit code 1 if the vLLM holds anything else.")
@option("--fetch", "Only have the libraries, as they are locked, on this machine.", "only_fetch")
@options.workspace
@manner.json_output
def command(
    name: str | None,
    target: str | None,
    workspace: str | None,
    *,
    check: bool,
    only_fetch: bool,
    as_json: bool,
) -> int:
    """Make a vLLM hold exactly the mods that vllm-mods.toml names for TARGET, as they are locked.

    Libraries are fetched as vllm-mods.lock has them, or not at all. What the file does not name is taken
    out, what is missing put in, what is another version renewed: whole or not at all. Where
    nothing is to be done, nothing is written. With SOURCE_DATE_EPOCH set, every file written
    has that modification time.
    """
    if only_fetch:
        project = fetch()
        names = list(project.libraries)
        return answers.answer(
            {"project": project.where, "libraries": names},
            f"here, as they are locked: {', '.join(names) or 'no library is named'}",
            as_json=as_json,
        )
    try:
        result = sync(
            name,
            target,
            default_target=lambda: os.environ.get(options.TARGET) or options.active_target(),
            workspace=workspace,
            source_date_epoch=source_date_epoch(),
            planned=announce,
            write=not check,
        )
    except Refused as error:
        if error.plan is None or as_json:
            raise
        raise in_words(error, error.plan) from error
    for note in result.done.notes:
        answers.note(note)
    ok = result.settled or not check
    again = [*([name] if name else ()), *(("--target", target) if target else ())]
    code = answers.answer(
        _data(result, check=check), "\n".join(_lines(result, check=check)), as_json=as_json, ok=ok
    )
    if not ok:
        answers.hint(shlex.join(["vllm-mods", "sync", *again]))
    return code


def _data(result: Synced, *, check: bool) -> dict[str, Any]:
    done = result.done
    return {
        **data.plan(done.plan),
        "ok": done.settled or not check,
        "project": result.project,
        "target": result.target.name,
        "settled": done.settled,
        "out": [data.applied(mod) for mod in done.out],
        "into": [data.applied(mod) for mod in done.into],
        "renewed": [data.applied(mod) for mod in done.renewed],
        "changed": list(done.changed),
        "check": check,
    }


def _lines(result: Synced, *, check: bool) -> list[str]:
    done = result.done
    lines = [text.tree_name(done.plan.version, done.target)]
    groups = {
        "goes out" if check else "is out": done.out,
        "goes in" if check else "is in": done.into,
        "is another version" if check else "is renewed": done.renewed,
    }
    lines += [f"  {mod.name} {mod.version} {what}" for what, mods in groups.items() for mod in mods]
    if done.settled:
        names = ", ".join(f"{one.mod.name} {one.mod.version}" for one in done.plan.mods)
        lines.append(f"it holds exactly what it should: {names or 'no mods'}")
    else:
        if not any((done.changed, *groups.values())):
            lines.append("  the receipt has its mods in another order")
        lines.append(text.done(done.changed, dry_run=check) if done.changed else "no file changes")
    return [*lines, *text.serve_arguments(done.plan, done.templates)]
