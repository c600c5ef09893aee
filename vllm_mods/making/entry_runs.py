"""The places at which a mod's Python programs go over entries, what the entries are called, and runs with some of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree
from vllm_mods.making import recording
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.recording import Limits, Recording
from vllm_mods.making.scratch_copy import ScratchCopy

_OWN_NAMES = ("name", "id", "patch_id", "key", "title", "label", "patch", "patch_name", "desc")
_KINDS = ("list", "loop", "calls")
_LONGEST = 60


class Entry(NamedTuple):
    """One entry: what may be its name, by where that stands in it, and its texts; the ``line`` of a call."""

    names: dict[str, str]
    texts: tuple[str, ...]
    line: int | None


class EntryPlace(NamedTuple):
    """A list, a loop or a row of calls with at least two entries; ``point`` names it in the sandbox."""

    point: str
    kind: str
    entries: tuple[Entry, ...]

    @property
    def where(self) -> str:
        """Return its file and line."""
        return ":".join(self.point.split(":")[:-2])

    def at(self, index: int) -> str:
        """Return where an entry stands, as far as that is known."""
        line = self.entries[index].line
        start = self.where.rpartition(":")[0]
        return f"{self.where}, entry {index + 1}" if line is None else f"{start}:{line}"


def read(log: bytes) -> tuple[EntryPlace, ...]:
    """Return the places that a run told of, those with most entries first.

    None that was gone over twice by one process, but for lists, and none with more entries than are taken apart.
    """
    told: dict[str, dict[int, dict[str, Any]]] = {}
    again: set[str] = set()
    for one in _lines(log):
        point = str(one["point"])
        if "again" in one:
            again.add(point)
        elif isinstance(index := one.get("index"), int) and index >= 0:
            told.setdefault(point, {}).setdefault(index, {}).update(
                {key: value for key, value in one.items() if value or key not in {"names", "texts"}}
            )
    found = []
    for point, entries in told.items():
        kind = point.rpartition(":")[2]
        whole = sorted(entries) == list(range(len(entries))) and point.count(":") >= 3
        if whole and kind in _KINDS and point not in again and 1 < len(entries) <= limits.ENTRIES:
            read_ = tuple(_entry(entries[index]) for index in range(len(entries)))
            found.append(EntryPlace(point, kind, read_))
    return tuple(sorted(found, key=lambda one: (-len(one.entries), _KINDS.index(one.kind))))


def largest(log: bytes) -> int:
    """Return how many entries the largest place has, those that are too large included."""
    told = (one.get("index") for one in _lines(log))
    return max((one + 1 for one in told if isinstance(one, int)), default=0)


def _lines(log: bytes) -> Iterator[dict[str, Any]]:
    for line in log.splitlines():
        try:
            one = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the program wrote there itself; what it is told of is proven by runs
        if isinstance(one, dict) and "point" in one:
            yield one


def _entry(told: dict[str, Any]) -> Entry:
    names, texts = (
        told[key] if isinstance(told.get(key), list) else [] for key in ("names", "texts")
    )
    line = told.get("line")
    pairs = [one for one in names if isinstance(one, list) and len(one) == 2]
    return Entry(
        {str(place): str(name) for place, name in pairs},
        tuple(one for one in texts if isinstance(one, str)),
        line if isinstance(line, int) else None,
    )


def names(place: EntryPlace, prefix: str) -> list[str]:
    """Return a mod's name for each entry: its own name or id where every entry has one, else a number."""
    width = len(str(len(place.entries)))
    numbers = [f"{i:0{width}}" for i in range(1, len(place.entries) + 1)]
    found = _own_names(place.entries) or numbers
    made = [one if one.startswith(f"{prefix}-") else f"{prefix}-{one}" for one in found]
    apart = len(set(made)) == len(made)  # `p-a` and `a` are not
    return made if apart else [f"{prefix}-{one}" for one in numbers]


def _own_names(entries: Sequence[Entry]) -> list[str] | None:
    shared = [key for key in entries[0].names if all(key in one.names for one in entries)]

    def rank(key: str) -> int:
        last = key.rpartition(".")[2]
        other = len(_OWN_NAMES) + (last == "__name__")
        return _OWN_NAMES.index(last) if last in _OWN_NAMES else other

    for key in sorted(shared, key=rank):
        values = [one.names[key] for one in entries]
        slugs = [_slug(value) for value in values]
        like_names = all(re.fullmatch(r"[\w][\w .:+#-]*", value) for value in values)
        told = rank(key) < len(_OWN_NAMES)
        files = any(value.endswith(".py") for value in values)
        if all(slugs) and len(set(slugs)) == len(slugs) and (told or (like_names and not files)):
            return slugs
    return None


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9.]+", "-", text.lower())[:_LONGEST].strip("-.")
    return re.sub(r"\.{2,}", ".", slug)


State = dict[str, bytes | None]
"""Files that differ from those of the tree, with what is in them."""


class EntryRuns:
    """Runs with some entries of ``place``, each once."""

    def __init__(self, source: LauncherFolder, copy: ScratchCopy, limits_: Limits) -> None:
        self._source, self._copy, self._limits = source, copy, limits_
        self.place: EntryPlace | None = None
        self.count = 0
        self._known: dict[tuple[str, frozenset[int]], State | str] = {}
        start = time.monotonic()
        self.whole = recording.useful(self._run({}))
        # an entry that is alone may wait for what never comes
        took = time.monotonic() - start
        self._limits = limits_._replace(seconds=min(limits_.seconds, 10 + 5 * took))
        self.truth = _state(self.whole)

    def _run(self, chosen: Mapping[str, object]) -> Recording:
        self.count += 1
        if self.count > 1:
            self._copy.restore()
        given = self._limits._replace(chosen=chosen)
        return recording.record_on(
            self._copy, ["./run.sh"], self._source.name, self._source.files, given
        )

    def of(self, kept: Iterable[int]) -> State | str:
        """Return what the program does with these entries, or why it does not end well."""
        assert self.place is not None  # noqa: S101  (one is looked at)
        chosen = frozenset(kept)
        key = self.place.point, chosen
        if len(chosen) == len(self.place.entries):
            return self.truth
        if key not in self._known:
            try:
                done = self._run({"point": self.place.point, "keep": sorted(chosen)})
            except Refused as error:
                self._known[key] = error.message
            else:
                beside = {*done.templates, *done.elsewhere} - {*self.whole.elsewhere}
                self._known[key] = f"it writes {min(beside)}" if beside else _state(done)
        return self._known[key]


def _state(done: Recording) -> State:
    return {one.path: one.after for one in done.changes}


def between(tree: Tree, before: State, after: State) -> tuple[FileChange, ...]:
    """Return the changes from one state of a tree to another."""

    def read(state: State, path: str) -> bytes | None:
        return state[path] if path in state else tree.read(path)

    pairs = ((path, read(before, path), read(after, path)) for path in sorted({*before, *after}))
    return tuple(
        FileChange(path=path, before=old, after=new) for path, old, new in pairs if old != new
    )
