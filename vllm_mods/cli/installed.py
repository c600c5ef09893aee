"""``vllm-mods status``, ``verify``, ``revert`` and ``sync``: which mods are in a vLLM, and exactly some of them."""

import os
from typing import Any

import click

from vllm_mods.api.installed import node_of, revert, status, verify
from vllm_mods.api.sync import fetch, sync
from vllm_mods.base.errors import Refused
from vllm_mods.cli import answers, options
from vllm_mods.cli.apply import announce, tell_plan
from vllm_mods.cli.options import option
from vllm_mods.report import installed as report
from vllm_mods.report.reply import Reply


@click.command(name="status")
@options.mods
@options.target_folder
@options.json_output
def status_command(mods: tuple[str, ...], target: str) -> Reply:
    """Tell which mods are in a vLLM tree: what its receipt says, and whether each file is so.

    Exit code 0 if and only if all that went in is in, as it was left; with MOD, if all of them are.
    """
    return report.status(status(target, *mods), target)


@click.command(name="verify")
@options.mods
@options.target_folder
@options.json_flag
def verify_command(mods: tuple[str, ...], target: str, *, as_json: bool) -> int:
    """Tell whether what mods put into a tree is still as they left it.

    Who changed a file since cannot be known. Exit code 1 if anything is not as it was. With --json there are
    the receipt and the versions of the packages too that vLLM and its mods name: where two nodes differ, so do these.
    """
    node = node_of(target) if as_json else None
    answer = report.verify(verify(target, *mods), target, node)
    return answers.print_reply(answer, as_json=as_json)


@click.command(name="revert")
@options.mods
@options.target_folder
@option("--discard-edits", "Also where a file was edited since the mod went in.")
@options.source_date_epoch
@options.json_output
def revert_command(mods: tuple[str, ...], target: str, **given: Any) -> Reply:
    """Take mods out again; the others stay as if these had never been in.

    Without MOD, all of them: every byte, mode and time is as before the first apply.
    """
    return report.revert(revert(target, *mods, **given), target)


@click.command(name="sync")
@click.argument("name", required=False, metavar="[TARGET]")
@option("--target DIR", "The vLLM [the target's path, else the active environment's].")
@option("--check", "Write nothing; exit code 1 if the vLLM holds anything else.")
@option("--fetch", "Only have the libraries, as they are locked, on this machine.", "only_fetch")
@options.workspace
@options.json_flag
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
        answer = Reply(data, f"here, as they are locked: {names}")
        return answers.print_reply(answer, as_json=as_json)
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
    again = (*((name,) if name else ()), *(("--target", target) if target else ()))
    return answers.print_reply(report.sync(result, check=check, again=again), as_json=as_json)
