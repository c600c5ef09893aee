"""``vllm-mods add``, ``update`` and ``remove``: libraries of others."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import click

from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, manner
from vllm_mods.cli.listing import aligned, of_mod, touched
from vllm_mods.cli.manner import option
from vllm_mods.formats.project_lock import RESOLVED, LockedLibrary
from vllm_mods.sharing import changing
from vllm_mods.sharing.changing import LibraryUpdate


@click.command(name="add")
@click.argument("source", metavar="SOURCE")
@option("--name NAME", "What its mods have in front [the owner's name].", "owner")
@option("--mod MOD", "A mod of it that the default target is to hold.", "mods", multiple=True)
@option(
    "--allowed-signers FILE",
    "One of these has to have signed it, now and whenever it is fetched.",
    "signers",
)
@manner.json_output
def add(
    source: str, owner: str | None, mods: tuple[str, ...], signers: str | None, *, as_json: bool
) -> int:
    """Add somebody's library to the project, pinned; say what it may touch. No vLLM is changed.

    SOURCE is git+URL[@REV][#subdirectory=DIR], package:NAME of an installed distribution, or a
    folder. It is written to vllm-mods.toml, here or further up in the
    repository, and what it is now to vllm-mods.lock. `vllm-mods sync` puts the mods in.
    """
    where = changing.place()
    found, suggested = changing.spelled(source, where, signers)
    done = changing.add(where, found, owner or suggested, mods)
    if not as_json:
        lines = [f"{done.name}: {done.locked.source}{_at(done.locked)}"]
        lines += [line for mod in done.mods for line in _mod_lines(mod)] or ["  it has no mods"]
        click.echo("\n".join(lines))
        answers.note(f"wrote {os.path.relpath(where)} and the lock beside it")
    words = next_step = None
    if done.named:
        words = f"`vllm-mods sync` will put in: {', '.join(done.named)}"
        next_step = "vllm-mods sync --check  # whether the target holds it; nothing is written"
    elif done.mods:
        next_step = f"vllm-mods show {done.name}/{done.mods[0].name}; to have it in: mods of [targets.default], then vllm-mods sync"
    data = {
        "project": where,
        "library": {"name": done.name, **_of_library(done.locked)},
        "mods": [of_mod(mod) for mod in done.mods],
        "named": list(done.named),
    }
    return answers.answer(data, words, as_json=as_json, next_step=next_step)


@click.command(name="remove")
@click.argument("library", metavar="LIBRARY")
@manner.json_output
def remove(library: str, *, as_json: bool) -> int:
    """Take a library out of the project, and its mods out of what targets hold. No vLLM is changed.

    `vllm-mods sync` takes them out of the target; `vllm-mods revert` takes one mod out of a vLLM.
    """
    where = changing.there().where
    mods = changing.remove(where, library)
    lines = [f"{library} is out of {where}"]
    lines += [f"  no target names {mod} any more" for mod in mods]
    return answers.answer(
        {"project": where, "removed": library, "no_longer_named": list(mods)},
        "\n".join(lines),
        as_json=as_json,
        next_step="vllm-mods sync  # takes its mods out of the target",
    )


@click.command(name="update")
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...")
@option("--dry-run", "Say what is newer, and write nothing.")
@manner.json_output
def update(libraries: tuple[str, ...], *, dry_run: bool, as_json: bool) -> int:
    """Look where the project's libraries are now, show what is new, and lock that. No vLLM is changed.

    Without LIBRARY, all of them. A tag that was moved shows here, and nowhere else: `sync` takes
    the commit that is locked. The way to another tag is `rev` in vllm-mods.toml, and then this.
    """
    where = changing.there().where
    found = changing.update(where, libraries, dry=dry_run)
    lines = [line for one in found for line in _lines(one)] or ["the project has no library"]
    next_step = None
    if any(one.changed for one in found):
        next_step = "vllm-mods update  # takes it" if dry_run else "vllm-mods sync  # puts it in"
    data = {"project": where, "libraries": [_data(one) for one in found], "dry_run": dry_run}
    return answers.answer(data, "\n".join(lines), as_json=as_json, next_step=next_step)


def _at(locked: LockedLibrary) -> str:
    """Say what a library was resolved to."""
    key = RESOLVED.get(locked.source.kind)
    return f" ({key} {locked.resolved[:12]})" if key else ""


def _of_library(locked: LockedLibrary) -> dict[str, Any]:
    """Return a library as the lock has it."""
    key = RESOLVED.get(locked.source.kind)
    resolved = {key: locked.resolved} if key else {}
    return {"source": str(locked.source), **resolved, "files": f"sha256:{locked.files}"}


def _mod_lines(mod: Mod) -> list[str]:
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


def _data(one: LibraryUpdate) -> dict[str, Any]:
    return {
        "name": one.name,
        "changed": one.changed,
        "before": None if one.before is None else _of_library(one.before),
        "now": _of_library(one.now),
        "mods": [
            {"name": name, "before": _version(old), "now": _version(new)}
            for name, old, new in _changes(one)
        ],
    }


def _lines(one: LibraryUpdate) -> list[str]:
    if not one.changed:
        return [f"{one.name}: {one.now.source}{_at(one.now)}: nothing is new"]
    if one.before is None:
        lines = [f"{one.name}: {one.now.source}{_at(one.now)}: was not locked yet"]
        return lines + [line for mod in one.mods_now for line in _mod_lines(mod)]
    lines = [f"{one.name}: {one.now.source}{_at(one.before)} →{_at(one.now)}"]
    for name, old, new in _changes(one):
        if old is None and new is not None:
            head, *rest = _mod_lines(new)
            lines += [f"  new: {head.strip()}", *rest]
        else:
            lines.append(f"  {name} {_version(old)} → {_version(new) or 'gone'}")
    if one.mods_before is None:
        lines.append(
            "  what was locked is not on this machine, so nobody can say which of its mods changed"
        )
    return lines


def _changes(one: LibraryUpdate) -> Sequence[tuple[str, Mod | None, Mod | None]]:
    """Return the mods that are others than before, by name: as they were, as they are."""
    if one.mods_before is None:
        return ()
    was = {mod.name: mod for mod in one.mods_before}
    now = {mod.name: mod for mod in one.mods_now}
    rows = ((name, was.get(name), now.get(name)) for name in sorted({*was, *now}))
    return [row for row in rows if not row[1] or not row[2] or row[1].digest != row[2].digest]


def _version(mod: Mod | None) -> str | None:
    return None if mod is None else f"{mod.version} ({mod.digest[:12]})"
