"""``vllm-mods export MOD|PAIRING``."""

from __future__ import annotations

import os

import click

from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.cli import options, shown
from vllm_mods.cli.import_command import write_new
from vllm_mods.library import trust, writing
from vllm_mods.making import exporting
from vllm_mods.planning import planner
from vllm_mods.recipes import writer


@click.command(name="export")
@click.argument("name", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@click.option(
    "--output",
    metavar="PATH",
    help="Write a pairing to a new file [standard output], a mod to a new folder.",
)
@click.option(
    "--tree", "specs", multiple=True, metavar="TREE", help="Of a mod: one more vLLM that it takes."
)
@click.option("--variant", metavar="ID", help="Of a mod: only the vLLMs of this variant [all].")
@options.libraries
@options.offline
@options.json_output
def command(
    name: str,
    *,
    output: str | None,
    specs: tuple[str, ...],
    variant: str | None,
    libraries: tuple[str, ...],
    offline: bool,
    as_json: bool,
) -> int:
    """Write a mod as a folder that launchers run as it is, or a pairing as a recipe.

    The folder's run.sh needs Python and nothing else. It changes vLLM only if every file that the
    mod touches has a hash that mod.lock or --tree tells, and fails otherwise. A pairing becomes a
    recipe that renders the same command.
    """
    library = options.open_library(libraries)
    if name not in library.names():
        if specs or variant or as_json:
            raise UsageError(
                f"--tree, --variant and --json are for mods, and there is no mod `{name}`",
                hint="vllm-mods list",
            )
        return _pairing(name, output, libraries)
    if name in library.pairing_names():
        raise UsageError(
            f"there are a mod and a pairing named `{name}`: which one is meant?",
            hint="rename one of them",
        )
    if output is None:
        raise UsageError("a mod becomes a folder: where?", hint=f"--output mods/{name}")
    mod = library.load(name)
    alone = mod._replace(requires=(), conflicts=(), after=())
    trees = [options.open_tree(spec, offline=offline) for spec in specs]
    planned = [(tree.version or tree.spec, planner.plan([alone], tree).mods[0]) for tree in trees]
    files = exporting.export(mod, planned, variant=variant)
    writing.folder(output, files)
    os.chmod(os.path.join(output, "run.sh"), 0o755)  # noqa: S103  (it is run)
    if as_json:
        options.print_json({"schema": 1, "mod": name, "folder": output, "files": sorted(files)})
    else:
        click.echo(f"wrote {output}: {len(files)} files; a recipe names it as {output}")
    for one in mod.requires:
        options.note(f"{name} needs {one}: export it too, and have it run before")
    return EXIT_OK


def _pairing(name: str, output: str | None, libraries: tuple[str, ...]) -> int:
    library = options.open_library(libraries)
    pairing = library.pairing(name)
    trust.demand_pairing(library, name)
    text = writer.write(pairing)
    if output is None:
        shown.file(text)
    else:
        write_new(output, text.encode())
        click.echo(f"wrote {output}", err=True)
    known = pairing.recipe.mods if pairing.recipe else {}
    for mod in dict.fromkeys((*pairing.mods, *pairing.templates)):
        if mod not in known:
            options.note(
                f"a launcher runs the folder mods/{mod}, which is not written: "
                f"`vllm-mods export {mod} --output mods/{mod}`, or have the image built with the mods"
            )
    return EXIT_OK
