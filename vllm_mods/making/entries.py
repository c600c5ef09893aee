"""A registry of patches, recorded in one run: what each of its entries changed, as ``inside/entries.py`` noted it."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.making import watching
from vllm_mods.making.compose import ModEffect

_SUFFIX = re.compile(r"\.(?:py|sh|patch|diff)\Z")


class Entry(NamedTuple):
    """An entry: whether it failed, in which line of which script and why, or what it changed: None for a file that it removed."""

    name: str
    failed: bool
    place: str
    reason: str
    changed: Mapping[str, bytes | None]


def read(written: Mapping[str, bytes]) -> tuple[Entry, ...]:
    """Read the entries that were noted, among the files that were written, each with a name of its own."""
    found: dict[str, Entry] = {}
    for number, one in enumerate(
        watching.commands(written.get(f"{watching.LAUNCHER}/entries", b"")), 1
    ):
        called, reason, folder, *paths = one.argv
        called = re.sub(r"[^A-Za-z0-9._-]+", "-", _SUFFIX.sub("", called)).strip("-._")[:80]
        name = f"{called or 'entry'}-{number}" if called in {"", *found} else called
        changed = {path: written.get(f"{folder}/{path}") for path in paths}
        found[name] = Entry(name, bool(one.code), one.place, reason, changed)
    return tuple(found.values())


def split(effect: ModEffect, entries: Sequence[Entry]) -> ModEffect:
    """Make each entry that went in an optional step, in their order.

    What the script itself did to a file goes with the next entry that changes it, or the last one; to other files, before all.
    """
    touched = {path for one in entries for path in one.changed}
    files = {one.path: one.after for one in effect.changes if one.path not in touched}
    optional: list[tuple[str, Mapping[str, bytes | None]]] = []
    for one in entries:
        if one.changed:
            optional.append((one.name, dict(files)))
            files |= one.changed
    idle = (one for one in entries if not (one.failed or one.changed))
    unchanged = (f"{one.name} changed no file{': ' * bool(one.reason)}{one.reason}" for one in idle)
    failed = tuple((one.name, one.reason) for one in entries if one.failed)
    notes = (*effect.notes, *unchanged)
    return effect._replace(optional=tuple(optional), failed=failed, notes=notes)
