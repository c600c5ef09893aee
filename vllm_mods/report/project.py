"""Answers of ``add``, ``remove`` and ``update``: what libraries of others are, and may touch."""

import os
from collections.abc import Sequence
from typing import Any

from vllm_mods.base.model import Mod
from vllm_mods.formats.project_lock import RESOLVED, LockedLibrary
from vllm_mods.report.library import mod_data, mod_lines
from vllm_mods.report.reply import Reply
from vllm_mods.sharing.changing import LibraryAdded, LibraryUpdate


def added(project: str, library: LibraryAdded) -> Reply:
    """Return a library that was added to the file ``project``, with what each of its mods may touch."""
    lines = [f"{library.name}: {library.locked.source}{_at(library.locked)}"]
    lines += [f"  {line}" for mod in library.mods for line in mod_lines(mod)] or [
        "  this library has no mods"
    ]
    next_step = None
    if library.named:
        lines.append(f"`vllm-mods sync` will apply: {', '.join(library.named)}")
        next_step = "vllm-mods sync --check  # shows what would change in the target"
    elif library.mods:
        mod = f"{library.name}/{library.mods[0].name}"
        next_step = f'vllm-mods show {mod}; to apply it, add "{mod}" to `mods` in the table [targets.default] of {os.path.relpath(project)}, then vllm-mods sync'
    answer = {
        "project": project,
        "library": {"name": library.name, **_of_library(library.locked)},
        "mods": list(map(mod_data, library.mods)),
        "named": library.named,
    }
    stderr = (f"note: wrote {os.path.relpath(project)} and the lock beside it",)
    return Reply(answer, "\n".join(lines), next_step=next_step, stderr=stderr)


def removed(project: str, library: str, mods: Sequence[str]) -> Reply:
    """Return that a library is out of the file ``project``, and which of its mods targets no longer name."""
    lines = [f"{library} was removed from {project}"]
    lines += [f"  no target names {mod} now" for mod in mods]
    answer = {"project": project, "removed": library, "no_longer_named": mods}
    return Reply(answer, "\n".join(lines), next_step="vllm-mods sync  # reverts the library's mods")


def updated(project: str, updates: Sequence[LibraryUpdate], *, dry_run: bool) -> Reply:
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
    lines = [line for one in updates for line in _lines(one)]
    next_step = "vllm-mods update  # locks this" if dry_run else "vllm-mods sync  # applies this"
    return Reply(
        {"project": project, "libraries": libraries, "dry_run": dry_run},
        "\n".join(lines) or "the project has no library",
        next_step=next_step if any(one.changed for one in updates) else None,
    )


def _at(locked: LockedLibrary) -> str:
    key = RESOLVED.get(locked.source.kind)
    return f" ({key} {locked.resolved[:12]})" if key else ""


def _of_library(locked: LockedLibrary) -> dict[str, Any]:
    key = RESOLVED.get(locked.source.kind)
    resolved = {key: locked.resolved} if key else {}
    return {"source": str(locked.source), **resolved, "files": f"sha256:{locked.files}"}


def _lines(update: LibraryUpdate) -> list[str]:
    head = f"{update.name}: {update.now.source}"
    if not update.changed:
        return [f"{head}{_at(update.now)}: nothing is new"]
    was = _at(update.before) if update.before else " (not locked)"
    lines = [f"{head}{was} →{_at(update.now)}"]
    for name, old, new in _changes(update):
        lines.append(f"  {name} {_version(old) or 'is new'} → {_version(new) or 'gone'}")
        lines += [f"  {line}" for line in mod_lines(new)] if new and not old else []
    if update.mods_before is None:
        lines.append("  the locked version is not stored here, so what changed in it is unknown")
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
