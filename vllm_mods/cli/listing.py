"""``vllm-mods list`` and ``show``: which mods and pairings there are, and one of them whole."""

import click

from vllm_mods.api.libraries import list_library
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import options
from vllm_mods.library.catalog import Library
from vllm_mods.report import library as report
from vllm_mods.report.reply import Reply


@click.command(name="show")
@click.argument("name", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@options.library
@options.json_output
def show(name: str, library: Library) -> Reply:
    """Show one mod or pairing: what a mod changes and needs, or what a pairing serves and how."""
    if not library.has_pairing(name):
        if not library.has(name):
            raise library.unknown(name)
        return report.mod(library.load(name))
    file = library.pairing_file(name)
    if library.has(name):
        why = f"`{name}` is the name of a mod and of a pairing, {file}"
        raise UsageError(why, hint="rename the pairing: rename its file, and edit `name` in it")
    return report.pairing(library.pairing(name), file)


@click.command(name="list")
@options.library
@options.json_output
def list_(library: Library) -> Reply:
    """List the mods and pairings: the bundled ones and those of --library.

    `list` reads every file, patches included. If a file cannot be read, it is named and the exit code is 2.
    """
    return report.listed(list_library(library), library)
