"""``vllm-mods refresh``."""

from __future__ import annotations

import os

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.port import recut, writing


@click.command(name="refresh")
@click.argument("name", metavar="MOD", shell_complete=options.complete_mods)
@option("--variant ID", "Only this variant [all with patches].", "chosen")
@options.own_libraries
@manner.offline
@manner.json_output
def command(name: str, chosen: str | None) -> int:
    """Cut a mod's patches anew without changing what they do.

    Line numbers, context and section headers become those of a release that mod.lock records, and
    every recorded release has to get the same bytes as before. A patch that is so already stays
    as it is, to the byte.
    """
    library = options.own_library()
    mod = library.load(name)
    options.check_own(library, mod)
    variants = [one for one in mod.variants if one.patches and chosen in {None, one.id}]
    if not variants:
        known = ", ".join(one.id for one in mod.variants if one.patches)
        what = f"no variant `{chosen}` with patches" if chosen else "no patches"
        raise UsageError(f"{name} has {what}", hint=f"--variant {known}" if known else None)
    releases = options.open_releases()
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
    keys = ("variant", "wrote", "releases")
    rows = [dict(zip(keys, row, strict=True)) for row in told]
    lines = []
    for variant_id, wrote, seen in told:
        what = "cut anew" if wrote else "is so already"
        lines.append(f"{name} {variant_id}: {what}, on {len(seen)} releases")
        lines += [f"  wrote {path}" for path in wrote]
    return answers.answer({"mod": name, "variants": rows}, "\n".join(lines))
