"""``vllm-mods list`` and ``show``: which mods and pairings there are, and one of them whole."""

from __future__ import annotations

import click

from vllm_mods.api.listing import list_library
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, options
from vllm_mods.cli.answers import Reply
from vllm_mods.cli.manner import option
from vllm_mods.library.catalog import Library
from vllm_mods.report import library as report


@click.command(name="show")
@click.argument("name", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@options.library
@answers.json_output
def show(name: str, library: Library) -> Reply:
    """Show one mod or pairing: what it changes and needs, or what is served and how."""
    if not library.has_pairing(name):
        mod = library.load(name)
        return Reply(report.mod_data(mod), report.mod_text(mod))
    file = library.pairing_file(name)
    if library.has(name):
        raise UsageError(
            f"`{name}` is the name of a mod and of a pairing, {file}",
            hint="rename the pairing: its file, and `name` in it",
        )
    pairing = library.pairing(name)
    return Reply(report.pairing_data(pairing, file), report.pairing_text(pairing, file))


@click.command(name="list")
@option("--check", "Read every patch too, and print only what is faulty.")
@options.library
@answers.json_output
def list_(library: Library, *, check: bool) -> Reply:
    """List the mods that can be applied and the pairings, bundled ones and those of --library."""
    listed = list_library(library, check=check)
    words = None if check else report.list_text(listed, library)
    return Reply(
        report.list_data(listed, library), words, exit_code=answers.tell_faults(listed.faults)
    )
