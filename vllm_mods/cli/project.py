"""``vllm-mods add``, ``update`` and ``remove``: libraries of others."""

from __future__ import annotations

import os

import click

from vllm_mods.cli import answers
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.manner import option
from vllm_mods.report import project as report
from vllm_mods.sharing import changing


@click.command(name="add")
@click.argument("source", metavar="SOURCE")
@option("--name NAME", "What its mods have in front [the owner's name].", "owner")
@option("--mod MOD", "A mod of it that the default target is to hold.", "mods", multiple=True)
@option(
    "--allowed-signers FILE",
    "One of these has to have signed it, now and whenever it is fetched.",
    "signers",
)
@answers.json_output
def add(source: str, owner: str | None, mods: tuple[str, ...], signers: str | None) -> Reply:
    """Add somebody's library to the project, pinned; say what it may touch. No vLLM is changed.

    SOURCE is git+URL[@REV][#subdirectory=DIR], package:NAME of an installed distribution, or a
    folder. It is written to vllm-mods.toml, here or further up in the
    repository, and what it is now to vllm-mods.lock. `vllm-mods sync` puts the mods in.
    """
    where = changing.project_path()
    library, suggested = changing.parse_source(source, where, signers)
    done = changing.add(where, library, owner or suggested, mods)
    answers.note(f"wrote {os.path.relpath(where)} and the lock beside it")
    next_step = None
    if done.named:
        next_step = "vllm-mods sync --check  # whether the target holds it; nothing is written"
    elif done.mods:
        next_step = f"vllm-mods show {done.name}/{done.mods[0].name}; to have it in: mods of [targets.default], then vllm-mods sync"
    return Reply(report.added_data(where, done), report.added_text(done), next_step=next_step)


@click.command(name="remove")
@click.argument("library", metavar="LIBRARY")
@answers.json_output
def remove(library: str) -> Reply:
    """Take a library out of the project, and its mods out of what targets hold. No vLLM is changed.

    `vllm-mods sync` takes them out of the target; `vllm-mods revert` takes one mod out of a vLLM.
    """
    where = changing.read_project().where
    mods = changing.remove(where, library)
    lines = [f"{library} is out of {where}", *(f"  no target names {mod} any more" for mod in mods)]
    return Reply(
        {"project": where, "removed": library, "no_longer_named": mods},
        "\n".join(lines),
        next_step="vllm-mods sync  # takes its mods out of the target",
    )


@click.command(name="update")
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...")
@option("--dry-run", "Say what is newer, and write nothing.")
@answers.json_output
def update(libraries: tuple[str, ...], *, dry_run: bool) -> Reply:
    """Look where the project's libraries are now, show what is new, and lock that. No vLLM is changed.

    Without LIBRARY, all of them. A tag that was moved shows here, and nowhere else: `sync` takes
    the commit that is locked. The way to another tag is `rev` in vllm-mods.toml, and then this.
    """
    where = changing.read_project().where
    updates = changing.update(where, libraries, dry=dry_run)
    next_step = None
    if any(one.changed for one in updates):
        next_step = "vllm-mods update  # takes it" if dry_run else "vllm-mods sync  # puts it in"
    data = {**report.updated_data(where, updates), "dry_run": dry_run}
    return Reply(data, report.updated_text(updates), next_step=next_step)
