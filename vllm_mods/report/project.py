"""Answers of ``add`` and ``update``: what libraries of others are, and may touch."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from vllm_mods.base.model import Mod
from vllm_mods.formats.project_lock import RESOLVED, LockedLibrary
from vllm_mods.report.library import aligned, mod_data, touched
from vllm_mods.sharing.changing import LibraryAdded, LibraryUpdate


def added_data(project: str, added: LibraryAdded) -> dict[str, Any]:
    """Return a library that was added to the file ``project``, with its mods."""
    return {
        "project": project,
        "library": {"name": added.name, **_of_library(added.locked)},
        "mods": list(map(mod_data, added.mods)),
        "named": added.named,
    }


def added_text(added: LibraryAdded) -> str:
    """Return the same for a person, with what each mod may touch."""
    lines = [f"{added.name}: {added.locked.source}{_at(added.locked)}"]
    lines += [line for mod in added.mods for line in _touching(mod)] or ["  it has no mods"]
    if added.named:
        lines.append(f"`vllm-mods sync` will put in: {', '.join(added.named)}")
    return "\n".join(lines)


def updated_data(project: str, updates: Sequence[LibraryUpdate]) -> dict[str, Any]:
    """Return what is new in libraries."""
    libraries = [
        {
            "name": one.name,
            "changed": one.changed,
            "before": None if one.before is None else _of_library(one.before),
            "now": _of_library(one.now),
            "mods": [
                {"name": name, "before": _version(old), "now": _version(new)}
                for name, old, new in _changes(one)
            ],
        }
        for one in updates
    ]
    return {"project": project, "libraries": libraries}


def updated_text(updates: Sequence[LibraryUpdate]) -> str:
    """Return the same for a person."""
    lines = [line for one in updates for line in _lines(one)]
    return "\n".join(lines) or "the project has no library"


def _at(locked: LockedLibrary) -> str:
    """Say what a library was resolved to."""
    key = RESOLVED.get(locked.source.kind)
    return f" ({key} {locked.resolved[:12]})" if key else ""


def _of_library(locked: LockedLibrary) -> dict[str, Any]:
    """Return a library as the lock has it."""
    key = RESOLVED.get(locked.source.kind)
    resolved = {key: locked.resolved} if key else {}
    return {"source": str(locked.source), **resolved, "files": f"sha256:{locked.files}"}


def _touching(mod: Mod) -> list[str]:
    """Return what somebody's mod is, and what it may touch, for a person who has not seen it before."""

    def listed(texts: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(texts))

    lines = aligned(
        ("changes", listed(path for one in mod.variants for path in touched(mod, one))),
        ("outside", listed(mod.outside)),
        ("binary", listed(one.path for variant in mod.variants for one in variant.binary)),
        ("in images", listed(file.path for file in mod.files)),
        ("variables", listed(f"{key}={value}" for key, value in mod.env)),
        ("serve with", shlex.join(mod.serve_args)),
        ("needs", listed(one for variant in mod.variants for one in variant.python)),
    )
    head = f"  {mod.name} {mod.version}  {mod.license}  {mod.summary}"
    return [head, *(f"  {line}" for line in lines)]


def _lines(update: LibraryUpdate) -> list[str]:
    if not update.changed:
        return [f"{update.name}: {update.now.source}{_at(update.now)}: nothing is new"]
    if update.before is None:
        lines = [f"{update.name}: {update.now.source}{_at(update.now)}: was not locked yet"]
        return lines + [line for mod in update.mods_now for line in _touching(mod)]
    lines = [f"{update.name}: {update.now.source}{_at(update.before)} →{_at(update.now)}"]
    for name, old, new in _changes(update):
        if old is None and new is not None:
            head, *rest = _touching(new)
            lines += [f"  new: {head.strip()}", *rest]
        else:
            lines.append(f"  {name} {_version(old)} → {_version(new) or 'gone'}")
    if update.mods_before is None:
        lines.append(
            "  what was locked is not on this machine, so nobody can say which of its mods changed"
        )
    return lines


def _changes(update: LibraryUpdate) -> Sequence[tuple[str, Mod | None, Mod | None]]:
    """Return the mods that are others than before, by name: as they were, as they are."""
    if update.mods_before is None:
        return ()
    was = {mod.name: mod for mod in update.mods_before}
    now = {mod.name: mod for mod in update.mods_now}
    rows = ((name, was.get(name), now.get(name)) for name in sorted({*was, *now}))
    return [row for row in rows if not row[1] or not row[2] or row[1].digest != row[2].digest]


def _version(mod: Mod | None) -> str | None:
    return None if mod is None else f"{mod.version} ({mod.digest[:12]})"
