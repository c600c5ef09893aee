"""``vllm-mods add``, ``update`` and ``remove``: libraries of others."""

import click

from vllm_mods.cli.options import json_output, option
from vllm_mods.report import project as report
from vllm_mods.report.reply import Reply
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
@json_output
def add(source: str, owner: str | None, mods: tuple[str, ...], signers: str | None) -> Reply:
    """Add somebody's library to the project, pinned; say what it may touch. No vLLM is changed.

    SOURCE is git+URL[@REV][#subdirectory=DIR], package:NAME of an installed distribution, or a
    folder. It is written to vllm-mods.toml, here or further up in the
    repository, and what it is now to vllm-mods.lock. `vllm-mods sync` puts the mods in.
    """
    where = changing.project_path()
    library, suggested = changing.parse_source(source, where, signers)
    done = changing.add(where, library, owner or suggested, mods)
    return report.added(where, done)


@click.command(name="remove")
@click.argument("library", metavar="LIBRARY")
@json_output
def remove(library: str) -> Reply:
    """Take a library out of the project, and its mods out of what targets hold. No vLLM is changed.

    `vllm-mods sync` takes them out of the target; `vllm-mods revert` takes one mod out of a vLLM.
    """
    where = changing.read_project().where
    return report.removed(where, library, changing.remove(where, library))


@click.command(name="update")
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...")
@option("--dry-run", "Say what is newer, and write nothing.")
@json_output
def update(libraries: tuple[str, ...], *, dry_run: bool) -> Reply:
    """Look where the project's libraries are now, show what is new, and lock that. No vLLM is changed.

    Without LIBRARY, all of them. A tag that was moved shows here, and nowhere else: `sync` takes
    the commit that is locked. The way to another tag is `rev` in vllm-mods.toml, and then this.
    """
    where = changing.read_project().where
    updates = changing.update(where, libraries, dry=dry_run)
    return report.updated(where, updates, dry_run=dry_run)
