"""``vllm-mods upgrade PAIRING``."""

from __future__ import annotations

import click

from vllm_mods.api.upgrade import Upgraded, roll_back, upgrade
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.apply import source_date_epoch
from vllm_mods.cli.build import image_lines
from vllm_mods.cli.lock import mod_lines
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.report import data


@click.command(name="upgrade")
@options.pairing_name
@option("--to VERSION", "The vLLM to move to [the one that it is on].")
@option(
    "--base REF",
    "The image to build on, wherever it lies [the pairing's, with that version in its tag].",
)
@option("--output WHERE", "As `build` has it [the engine that the base lies in].")
@option("--rollback", "Back to what pairing and lock were before.")
@options.libraries
@manner.json_output
def command(
    name: str,
    to: str | None,
    base: str | None,
    output: str | None,
    libraries: LibraryArguments,
    *,
    rollback: bool,
    as_json: bool,
) -> int:
    """Move a pairing to another vLLM: check, lock, serve-check and build, all of it or nothing.

    The pairing's file gets the base and the range of that version, the image a tag of its own; the old
    image stays, and pairing and lock as they were are kept beside them for --rollback. Without --to, a
    base that has another digest by now gets the pairing's layer anew. Nothing is ported: a mod that does
    not fit is a refusal that names the command.
    """
    library, access = libraries.open_own(), options.open_access()
    if rollback:
        if (to, base, output) != (None, None, None):
            raise UsageError(
                "--rollback goes to what was before, and takes neither --to nor --base nor --output",
                hint=f"vllm-mods upgrade {name} --rollback",
            )
        return _answer(roll_back(library, name), as_json=as_json)
    result = upgrade(
        library,
        name,
        to=to,
        base=base,
        output=output,
        source_date_epoch=source_date_epoch(),
        access=access,
    )
    return _answer(result, as_json=as_json)


def _answer(result: Upgraded, *, as_json: bool) -> int:
    """Print what became of a lock."""
    lock, before = result.now.lock, result.before.lock
    answer = {
        "pairing": lock.pairing,
        "changed": result.changed,
        "tag": result.now.tag,
        "lock": result.now.path,
        "base": lock.base.ref,
        "vllm": lock.vllm.version,
        "mods": [data.fields(mod, "name", "version", "verdict") for mod in lock.mods],
        "differences": [one._asdict() for one in result.differences],
    }
    if not result.changed:
        nothing = f"{lock.pairing} is on {lock.base.ref} as it is now: nothing moved"
        return answers.answer(answer, nothing, as_json=as_json)
    lines = [
        f"{lock.pairing}: vLLM {before.vllm.version} → {lock.vllm.version}, now {result.now.tag} on {lock.base.ref}",
        *mod_lines(lock),
        "what moved:",
        *(f"  {one}" for one in result.differences),
    ]
    if result.written is not None:
        answer["image"] = result.images[0].built.config_digest
        answer["manifest"] = result.written.pushed
        lines += [result.written.said, *image_lines(result.images)]
    lines.append(f"stays  {result.before.tag}")
    return answers.answer(answer, "\n".join(lines), as_json=as_json)
