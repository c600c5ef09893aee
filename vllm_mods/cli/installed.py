"""``vllm-mods status``, ``verify``, ``revert`` and ``sync``: which mods are in a vLLM, and exactly some of them."""

import os
from typing import Any

import click

from vllm_mods.api.installed import node_of, status, verify
from vllm_mods.api.sync import fetch, sync
from vllm_mods.applying.carry_out import revert
from vllm_mods.cli import answers, options
from vllm_mods.cli.apply import announce
from vllm_mods.cli.options import option
from vllm_mods.report import installed as report
from vllm_mods.report.reply import Reply


@click.command(name="status")
@options.mods
@options.target_folder
@options.json_output
def status_command(mods: tuple[str, ...], target: str) -> Reply:
    """Show which mods are recorded as applied to a vLLM tree, and whether their files are unchanged.

    Exit code 0 if all files are unchanged and each MOD is applied.
    """
    return report.status(status(target, *mods), target)


@click.command(name="verify")
@options.mods
@options.target_folder
@options.json_flag
def verify_command(mods: tuple[str, ...], target: str, *, as_json: bool) -> int:
    """Check that the files of the applied mods are unchanged.

    Exit code 1 if a file was changed; vllm-mods cannot tell which program changed it. To compare two nodes, compare their
    --json. JSON also has the record of what was applied, and the versions of the packages that vLLM and its mods require.
    """
    node = node_of(target) if as_json else None
    return answers.print_reply(report.verify(verify(target, *mods), target, node), as_json=as_json)


@click.command(name="revert")
@options.mods
@options.target_folder
@option("--discard-edits", "Revert even if files were edited since the apply; the edits are lost.")
@option("--only-edits", "Keep the mods, and discard only the edits that were made after the apply.")
@options.source_date_epoch
@options.json_output
def revert_command(mods: tuple[str, ...], target: str, **given: Any) -> Reply:
    """Remove mods from a vLLM, as if they had never been applied; the other mods stay.

    Without MOD, remove all mods. Each file gets back the contents, permissions and time that it had before the first apply.
    """
    return report.revert(revert(target, *mods, **given), target)


@click.command(name="sync")
@click.argument("name", required=False, metavar="[NAME]")
@option("--target DIR", "The vLLM to change [`path` of NAME, else the active environment].")
@option("--check", "Write nothing; exit code 1 if `sync` would change anything.")
@option("--fetch", "Only download the libraries at their locked versions.", "only_fetch")
@options.workspace
@options.json_output
@options.source_date_epoch
def sync_command(
    name: str | None, target: str | None, *, check: bool, only_fetch: bool, **given: Any
) -> Reply:
    """Give a vLLM exactly the mods of [targets.NAME] in vllm-mods.toml, at their locked versions.

    Libraries are fetched as recorded in vllm-mods.lock. Missing mods are applied, other versions are replaced, and mods that
    vllm-mods.toml does not list are reverted: all of this or nothing. If nothing has to change, nothing is written.
    If the variable SOURCE_DATE_EPOCH is set, every file that is written gets that modification time.
    """
    if only_fetch:
        names = {"name", "target", "check", "workspace"}
        options.refuse_beside("--fetch", names, "omit --fetch, or omit these")
        project = fetch()
        fetched = ", ".join(project.libraries) or "none, as the project has no library"
        data = {"project": project.where, "libraries": list(project.libraries)}
        return Reply(data, f"fetched at their locked versions: {fetched}")
    result = sync(
        name,
        target,
        default_target=lambda: os.environ.get(options.TARGET) or options.active_target(),
        planned=announce,
        write=not check,
        **given,
    )
    again = (*((name,) if name else ()), *(("--target", target) if target else ()))
    return report.sync(result, check=check, again=again)
