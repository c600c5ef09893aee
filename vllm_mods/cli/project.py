"""``vllm-mods add``, ``update`` and ``remove``: libraries of others."""

import click

from vllm_mods.cli.options import json_output, option
from vllm_mods.report import project as report
from vllm_mods.report.reply import Reply
from vllm_mods.sharing import changing


@click.command(name="add")
@click.argument("source", metavar="SOURCE")
@option("--name NAME", "The library's name, as in NAME/MOD [the owner in the git URL].", "owner")
@option("--mod MOD", "A mod of the library for `sync` to apply.", "mods", multiple=True)
@option("--allowed-signers FILE", "Require a signature by a signer in FILE.", "signers")
@json_output
def add(source: str, owner: str | None, mods: tuple[str, ...], signers: str | None) -> Reply:
    """Add someone else's library to the project, lock its version, and print what it can change. No vLLM is changed.

    SOURCE is git+URL[@REV][#subdirectory=DIR], a folder, or package:NAME (an installed distribution). `add` writes
    SOURCE to vllm-mods.toml, and its current revision to vllm-mods.lock. The project is the folder that has
    vllm-mods.toml: the current folder, or a parent folder within the same repository. `vllm-mods sync` applies the mods.
    """
    where = changing.project_path()
    library, suggested = changing.parse_source(source, where, signers)
    return report.added(where, changing.add(where, library, owner or suggested, mods))


@click.command(name="remove")
@click.argument("library", metavar="LIBRARY")
@json_output
def remove(library: str) -> Reply:
    """Remove a library, and its mods, from vllm-mods.toml. The mods stay applied until the next `vllm-mods sync`.

    To remove one mod from a vLLM, use `vllm-mods revert`.
    """
    where = changing.read_project().where
    return report.removed(where, library, changing.remove(where, library))


@click.command(name="update")
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...")
@option("--dry-run", "Print what is new; write nothing.")
@json_output
def update(libraries: tuple[str, ...], *, dry_run: bool) -> Reply:
    """Look for new revisions of the project's libraries, show what changed, and lock the new revisions. No vLLM is changed.

    Without LIBRARY, update all of them. `sync` always takes the commit in vllm-mods.lock. If a tag moves
    to another commit, only `update` notices. To use another tag, edit `rev` in vllm-mods.toml, then run `update`.
    """
    where = changing.read_project().where
    return report.updated(where, changing.update(where, libraries, dry=dry_run), dry_run=dry_run)
