"""``vllm-mods update``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.base.errors import EXIT_OK
from vllm_mods.base.model import Mod
from vllm_mods.cli import options
from vllm_mods.cli.add import at, mod_lines, of_library
from vllm_mods.sharing import changing
from vllm_mods.sharing.changing import LibraryUpdate


@click.command(name="update")
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...")
@click.option("--dry-run", is_flag=True, help="Say what is newer, and write nothing.")
@options.json_output
def command(libraries: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    """Look where the project's libraries are now, show what is new, and lock that. No vLLM is changed.

    Without LIBRARY, all of them. A tag that was moved shows here, and nowhere else: `sync` takes
    the commit that is locked. The way to another tag is `rev` in vllm-mods.toml, and then this.
    """
    where = changing.there().where
    found = changing.update(where, libraries, dry=dry_run)
    if as_json:
        options.print_json(
            {
                "schema": 1,
                "project": where,
                "libraries": [_data(one) for one in found],
                "dry_run": dry_run,
            }
        )
        return EXIT_OK
    for one in found:
        click.echo("\n".join(_lines(one)))
    if not found:
        click.echo("the project has no library")
    if any(one.changed for one in found):
        command = "vllm-mods update" if dry_run else "vllm-mods sync"
        options.hint(
            f"{command}  # {'takes' if dry_run else 'puts'} it {'' if dry_run else 'in'}".rstrip()
        )
    return EXIT_OK


def _data(one: LibraryUpdate) -> dict[str, Any]:
    return {
        "name": one.name,
        "changed": one.changed,
        "before": None if one.before is None else of_library(one.before),
        "now": of_library(one.now),
        "mods": [
            {"name": name, "before": _version(old), "now": _version(new)}
            for name, old, new in changes(one)
        ],
    }


def _lines(one: LibraryUpdate) -> list[str]:
    if not one.changed:
        return [f"{one.name}: {one.now.source}{at(one.now)}: nothing is new"]
    if one.before is None:
        lines = [f"{one.name}: {one.now.source}{at(one.now)}: was not locked yet"]
        return lines + [line for mod in one.mods_now for line in mod_lines(mod)]
    lines = [f"{one.name}: {one.now.source}{at(one.before)} →{at(one.now)}"]
    for name, old, new in changes(one):
        if old is None and new is not None:
            lines += [
                f"  new: {line.strip()}" if n == 0 else line
                for n, line in enumerate(mod_lines(new))
            ]
        else:
            lines.append(f"  {name} {_version(old)} → {_version(new) or 'gone'}")
    if one.mods_before is None:
        lines.append(
            "  what was locked is not on this machine, so nobody can say which of its mods changed"
        )
    return lines


def changes(one: LibraryUpdate) -> Sequence[tuple[str, Mod | None, Mod | None]]:
    """Return the mods that are others than before, by name: as they were, as they are."""
    was = {mod.name: mod for mod in one.mods_before or ()}
    now = {mod.name: mod for mod in one.mods_now}
    return [
        (name, was.get(name), now.get(name))
        for name in sorted({*was, *now} if one.mods_before is not None else ())
        if (was[name].digest if name in was else "") != (now[name].digest if name in now else "")
    ]


def _version(mod: Mod | None) -> str | None:
    return None if mod is None else f"{mod.version} ({mod.digest[:12]})"
