"""``vllm-mods add``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import Any

import click

from vllm_mods.base.errors import EXIT_OK
from vllm_mods.base.model import Mod
from vllm_mods.cli import options
from vllm_mods.cli.show import aligned, of_mod, touched
from vllm_mods.formats.project_lock import RESOLVED, LockedLibrary
from vllm_mods.sharing import changing


@click.command(name="add")
@click.argument("source", metavar="SOURCE")
@click.option(
    "--name", "owner", metavar="NAME", help="What its mods have in front [the owner's name]."
)
@click.option(
    "--mod",
    "mods",
    multiple=True,
    metavar="MOD",
    help="A mod of it that the default target is to hold.",
)
@click.option(
    "--allowed-signers",
    "signers",
    metavar="FILE",
    help="One of these has to have signed it, now and whenever it is fetched.",
)
@options.json_output
def command(
    source: str, owner: str | None, mods: tuple[str, ...], signers: str | None, *, as_json: bool
) -> int:
    """Add somebody's library to the project, pinned; say what it may touch. No vLLM is changed.

    SOURCE is git+URL[@REV][#subdirectory=DIR], oci:REFERENCE, package:NAME of an installed
    distribution, or a folder. It is written to vllm-mods.toml, here or further up in the
    repository, and what it is now to vllm-mods.lock. `vllm-mods sync` puts the mods in.
    """
    where = changing.place()
    found, suggested = changing.spelled(source, where, signers)
    done = changing.add(where, found, owner or suggested, mods)
    if as_json:
        options.print_json(
            {
                "schema": 1,
                "project": where,
                "library": {"name": done.name, **of_library(done.locked)},
                "mods": [of_mod(mod) for mod in done.mods],
                "named": list(done.named),
            }
        )
        return EXIT_OK
    click.echo(f"{done.name}: {done.locked.source}{at(done.locked)}")
    for mod in done.mods:
        click.echo("\n".join(mod_lines(mod)))
    if not done.mods:
        click.echo("  it has no mods")
    options.note(f"wrote {os.path.relpath(where)} and the lock beside it")
    if done.named:
        click.echo(f"`vllm-mods sync` will put in: {', '.join(done.named)}")
        options.hint("vllm-mods sync --check  # whether the target holds it; nothing is written")
    elif done.mods:
        options.hint(
            f"vllm-mods show {done.name}/{done.mods[0].name}; to have it in: mods of [targets.default], then vllm-mods sync"
        )
    return EXIT_OK


def at(locked: LockedLibrary) -> str:
    """Say what a library was resolved to."""
    key = RESOLVED.get(locked.source.kind)
    return f" ({key} {locked.resolved.removeprefix('sha256:')[:12]})" if key else ""


def of_library(locked: LockedLibrary) -> dict[str, Any]:
    """Return a library as the lock has it."""
    key = RESOLVED.get(locked.source.kind)
    resolved = {key: locked.resolved} if key else {}
    return {"source": str(locked.source), **resolved, "files": f"sha256:{locked.files}"}


def mod_lines(mod: Mod) -> list[str]:
    """Return what somebody's mod is, and what it may touch, for a person who has not seen it before."""

    def joined(texts: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(texts))

    lines = aligned(
        ("changes", joined(path for one in mod.variants for path in touched(mod, one))),
        ("outside", joined(mod.outside)),
        ("binary", joined(one.path for variant in mod.variants for one in variant.binary)),
        ("in images", joined(file.path for file in mod.files)),
        ("variables", joined(f"{key}={value}" for key, value in mod.env)),
        ("serve with", shlex.join(mod.serve_args)),
        ("needs", joined(one for variant in mod.variants for one in variant.python)),
    )
    head = f"  {mod.name} {mod.version}  {mod.license}  {mod.summary}"
    return [head, *(f"  {line}" for line in lines)]
