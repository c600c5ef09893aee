"""``vllm-mods status``, ``verify``, ``revert`` and ``sync``: which mods are in a vLLM, and exactly some of them."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from vllm_mods.api.revert import revert
from vllm_mods.api.status import status
from vllm_mods.api.sync import fetch, sync
from vllm_mods.api.verify import compare, node_of, verify
from vllm_mods.base import limits
from vllm_mods.base.errors import Refused
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.apply import announce, tell_plan
from vllm_mods.cli.manner import option
from vllm_mods.report import installed as report


@click.command(name="status")
@options.mods
@options.target_folder
@answers.json_output
def status_command(mods: tuple[str, ...], target: str) -> Reply:
    """Tell which mods are in a vLLM tree: what its receipt says, and whether each file is so.

    Exit code 0 if and only if all that went in is in, as it was left; with MOD, if all of them are.
    """
    result = status(target, *mods)
    text = report.status_text(result, target)
    return Reply(report.status_data(result, target), text, result.ok, result.hint)


@click.command(name="verify")
@options.mods
@option(
    "--target DIR",
    "The vllm package folder, or the folder that holds it [the active environment's].",
)
@option(
    "--receipt FILE...",
    "Compare receipts, or what `verify --json` said on the nodes of a cluster.",
    "receipts",
    multiple=True,
)
@manner.json_flag
def verify_command(
    mods: tuple[str, ...], target: str | None, receipts: tuple[str, ...], *, as_json: bool
) -> int:
    """Tell whether what mods put into a tree is still as they left it.

    Who changed a file since cannot be known. Exit code 1 if anything is not as it was.

    With --receipt FILE FILE...: tell where these receipts differ, and with --target that of a
    tree from them. What `verify --json` wrote on a node stands for its receipt, and has the versions
    of the packages too that vLLM and its mods name. Exit code 1 if anything differs.
    """
    if receipts:
        return _compare((*receipts, *mods), target).print(as_json=as_json)
    target = target or os.environ.get(options.TARGET) or options.active_target()
    result = verify(target, *mods)
    data = report.verify_data(result, target, node_of(target) if as_json else None)
    return Reply(data, report.verify_text(result, target), result.ok).print(as_json=as_json)


def _compare(files: tuple[str, ...], target: str | None) -> Reply:
    result = compare([(path, _read(path)) for path in files], target)
    if result.without_packages is not None:
        answers.note(
            f"{result.without_packages} is a receipt alone, which does not tell the versions of packages: "
            "`vllm-mods verify --json` on that node does"
        )
    return Reply(report.compared_data(result), report.compared_text(result), result.ok)


def _read(path: str) -> bytes:
    with named_files.opened(path) as file:
        return limits.bounded(file, limits.RECEIPT, path)


@click.command(name="revert")
@options.mods
@options.target_folder
@option("--discard-edits", "Also where a file was edited since the mod went in.")
@options.source_date_epoch
@answers.json_output
def revert_command(mods: tuple[str, ...], target: str, **given: Any) -> Reply:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    done = revert(target, *mods, **given)
    for note in done.notes:
        answers.note(note)
    return Reply(report.revert_data(done, target), report.revert_text(done, target))


@click.command(name="sync")
@click.argument("name", required=False, metavar="[TARGET]")
@option("--target DIR", "The vLLM [the target's path, else the active environment's].")
@option("--check", "Write nothing; exit code 1 if the vLLM holds anything else.")
@option("--fetch", "Only have the libraries, as they are locked, on this machine.", "only_fetch")
@options.workspace
@manner.json_flag
@options.source_date_epoch
def sync_command(
    name: str | None,
    target: str | None,
    *,
    check: bool,
    only_fetch: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Make a vLLM hold exactly the mods that vllm-mods.toml names for TARGET, as they are locked.

    Libraries are fetched as vllm-mods.lock has them, or not at all. What the file does not name is taken
    out, what is missing put in, what is another version renewed: whole or not at all. Where
    nothing is to be done, nothing is written. With SOURCE_DATE_EPOCH set, every file written
    has that modification time.
    """
    if only_fetch:
        project = fetch()
        names = ", ".join(project.libraries) or "no library is named"
        data = {"project": project.where, "libraries": list(project.libraries)}
        return Reply(data, f"here, as they are locked: {names}").print(as_json=as_json)
    try:
        result = sync(
            name,
            target,
            default_target=lambda: os.environ.get(options.TARGET) or options.active_target(),
            planned=announce,
            write=not check,
            **given,
        )
    except Refused as error:
        raise tell_plan(error, as_json=as_json) from error
    for note in result.done.notes:
        answers.note(note)
    again = [*([name] if name else ()), *(("--target", target) if target else ())]
    ok = result.settled or not check
    return Reply(
        report.sync_data(result, check=check),
        report.sync_text(result, check=check),
        ok,
        None if ok else shlex.join(["vllm-mods", "sync", *again]),
    ).print(as_json=as_json)
