"""Runs of a mod's script with some of the entries that its Python goes over, and what each left behind."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange, Tree
from vllm_mods.making import recording
from vllm_mods.making.entry_places import EntryPlace
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.recording import Limits, Recording
from vllm_mods.making.scratch_copy import ScratchCopy

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
