"""``vllm-mods refresh``."""

from __future__ import annotations

import os

import click

from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.cli import options
from vllm_mods.port import recut, writing
from vllm_mods.trees.release import Releases


@click.command(name="refresh")
@click.argument("name", metavar="MOD", shell_complete=options.complete_mods)
@click.option("--variant", "chosen", metavar="ID", help="Only this variant [all with patches].")
@options.own_libraries
@options.offline
@options.json_output
def command(
    name: str, chosen: str | None, libraries: tuple[str, ...], *, offline: bool, as_json: bool
) -> int:
    """Cut a mod's patches anew without changing what they do.

    Line numbers, context and section headers become those of a release that mod.lock records, and
    every recorded release has to get the same bytes as before. A patch that is so already stays
    as it is, to the byte.
    """
    library = options.own_library(libraries)
    mod = library.load(name)
    options.check_own(library, mod)
    variants = [one for one in mod.variants if one.patches and chosen in {None, one.id}]
    if not variants:
        known = ", ".join(one.id for one in mod.variants if one.patches)
        what = f"no variant `{chosen}` with patches" if chosen else "no patches"
        raise UsageError(f"{name} has {what}", hint=f"--variant {known}" if known else None)
    releases = Releases(offline=offline, progress=options.progress(), note=options.note)
    told = []
    for variant in variants:
        done = recut.run(mod, variant, releases.open, library.roots)
        if done.files:
            writing.overwrite(mod, done.files)
            mod = library.load(name)
        patches = sorted(done.files.keys() & {patch.source for patch in variant.patches})
        told.append(
            (variant.id, [os.path.join(mod.directory, one) for one in patches], done.releases)
        )
    if as_json:
        keys = ("variant", "wrote", "releases")
        rows = [dict(zip(keys, row, strict=True)) for row in told]
        options.print_json({"schema": 1, "mod": name, "variants": rows})
        return EXIT_OK
    for variant_id, wrote, seen in told:
        click.echo(
            f"{name} {variant_id}: {'cut anew' if wrote else 'is so already'}, on {len(seen)} releases"
        )
        for path in wrote:
            click.echo(f"  wrote {path}")
    return EXIT_OK
