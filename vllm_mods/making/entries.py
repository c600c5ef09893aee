"""A registry of patches, recorded in one run: what each of its entries changed, as ``inside/vllm_mods_entries.py`` noted it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.untrusted import number_of
from vllm_mods.making import sandbox, watching
from vllm_mods.making.compose import ModEffect
from vllm_mods.placing.scopes import long_strings

_BY = b"@eval('each', __import__('runpy').run_path('/launcher/vllm_mods_entries.py'))\n"
WATCHING = re.compile(re.escape(_BY) + rb"[ \t]*")  # copies of scripts have it, too


class Entry(NamedTuple):
    """An entry: whether it failed, in which line of which script and why, how often it asked for a network, or what it changed: None for a file that it removed."""

    name: str
    failed: bool
    place: str
    reason: str
    unreached: int
    changed: Mapping[str, bytes | None]


def watched(files: Mapping[str, bytes], each: str) -> dict[str, bytes]:
    """Return scripts with the functions ``each`` watched, and what watches a program of this name, by absolute paths."""
    function = re.compile(
        rb"^([ \t]*)(?=(?:async )?def %s\()" % re.escape(each.encode()), re.MULTILINE
    )

    def by(found: re.Match[bytes]) -> bytes:
        above = found.string.count(b"\n", 0, found.start())
        in_text = any(first <= above < last for first, last in long_strings(found.string))
        return found[0] + (not in_text) * (_BY + found[0])

    scripts = {path: function.sub(by, data) for path, data in files.items()}
    scripts[f"{watching.LAUNCHER}/vllm_mods_entries.py"] = sandbox.program("vllm_mods_entries.py")
    return scripts | {f"{watching.BIN}/{each}": sandbox.program("stand_in.sh")}


def read(written: Mapping[str, bytes]) -> tuple[Entry, ...]:
    """Read the entries that were noted, among the files that were written."""
    found: list[Entry] = []
    log = watching.commands(written.get(f"{watching.LAUNCHER}/entries", b""))
    calls = (call for call in log if len(call.argv) > 3)  # it may be forged
    for number, call in enumerate(calls, 1):
        called, why, sent, folder, *paths = call.argv
        called = re.sub(r"\.(?:py|sh|patch|diff)\Z|[^A-Za-z0-9._]", "-", called).strip("-._")[:80]
        is_new = called and all(called != other.name for other in found)
        name = called if is_new else f"{called or 'entry'}-{number}"
        changed = {path: written.get(f"{folder}/{path}") for path in paths}
        why, unreached = why.replace("\n", "\n  | "), number_of(sent) or 0
        found.append(Entry(name, bool(call.code), call.place, why, unreached, changed))
    return tuple(found)


def split(effect: ModEffect, entries: Sequence[Entry], notes: Iterable[str]) -> ModEffect:
    """Make each entry that went in an optional step, in their order, and state what became of the others.

    What the script itself did to a file goes with the next entry that changes it, or the last one; to other files, before all.
    """
    touched = {path for entry in entries for path in entry.changed}
    files = {file.path: file.after for file in effect.changes if file.path not in touched}
    optional: list[tuple[str, Mapping[str, bytes | None]]] = []
    for entry in filter(lambda entry: entry.changed, entries):
        optional.append((entry.name, dict(files)))
        files |= entry.changed
    idle = ((e.name, e.reason) for e in entries if not (e.failed or e.changed))
    unchanged = (f"{name} changed no file{': ' * bool(why)}{why}" for name, why in idle)
    failed = tuple(f"{entry.name}: {entry.reason}" for entry in entries if entry.failed)
    notes = (*effect.notes, *unchanged, *notes)
    return effect._replace(optional=tuple(optional), failed=failed, notes=notes)
