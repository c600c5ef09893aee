"""A registry of text patchers as one mod for each of its entries, with what it requires.

Only runs tell what an entry does: the whole program is run once, which is the truth, and with each entry alone. An
entry that does nothing alone, or another thing than in the whole, is run with earlier ones until it does what it does
there. All mods together have to make the very bytes of the whole run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.base.model import FileChange, Mod
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.library import mod_folder
from vllm_mods.making import compose, entry_runs, scratch_copy
from vllm_mods.making.compose import Composed, Wanted
from vllm_mods.making.entry_runs import EntryPlace, EntryRuns, State, between
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.recording import Limits
from vllm_mods.planning import dependencies, patching, planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.patching import Attempt

_PLACES = 8  # how many are tried
_TRIES = 24  # how often it is tried whether an entry needs fewer others
_WORD = re.compile(rb"[A-Za-z_]\w{2,}")
_WHOLE = "vllm-mods import PATH --record --tree TREE makes one mod of all of it"


class EntryMod(NamedTuple):
    """The mod of an entry, where that stands, and the places in the registry of those that it requires."""

    name: str
    where: str
    files: dict[str, bytes]
    requires: tuple[str, ...]


class EachMade(NamedTuple):
    """A mod for each entry that does something; ``idle`` are the others, with the reason."""

    where: str
    mods: tuple[EntryMod, ...]
    idle: tuple[tuple[str, str], ...]
    told: tuple[str, ...]
    unknown: tuple[str, ...]
    runs: int


def make(
    source: LauncherFolder,
    wanted: Wanted,
    tree: Tree,
    limits_: Limits,
    tell: Callable[[str], None],
) -> EachMade:
    """Take a mod's patcher apart. Raises ``Refused`` where it is none, or its entries are not mods of their own."""
    with scratch_copy.copied(tree, limits_.also) as copy:
        runs = EntryRuns(source, copy, limits_)
        whole = runs.whole
        if whole.templates:
            raise Refused(
                f"it brings {', '.join(whole.templates)}, which is no entry's", hint=_WHOLE
            )
        wanted = wanted._replace(python=tuple(dict.fromkeys((*wanted.python, *whole.python))))
        objections: list[str] = []
        for place in entry_runs.read(whole.points)[:_PLACES]:
            runs.place = place
            why = _objection(runs, place)
            # text for text rests on less than a patch does, and now and then on too little
            for as_texts in () if why else (True, False):
                try:
                    return _EntriesApart(runs, wanted, tree, tell, as_texts=as_texts).taken()
                except Refused as error:
                    why = why or error.message
            first = why if not objections else str(why).partition("\n")[0]
            objections.append(f"\n  {place.where}: {first}")
    if entry_runs.largest(whole.points) > limits.ENTRIES:
        objections.append(f"\n  it goes over more than {limits.ENTRIES}")
    nothing = "\n  its Python has no list or loop of them, and no calls one below the other"
    raise Refused(
        f"it is no registry of entries that do the work one by one:{''.join(objections) or nothing}",
        hint=_WHOLE,
    )


def _objection(runs: EntryRuns, place: EntryPlace) -> str | None:
    """Say why the entries of a place are not what does the work, None if they are."""
    none = runs.of(())
    if none and not isinstance(none, str):
        return f"without these entries it still changes {min(none)}"
    if runs.truth in (runs.of({0}), runs.of({len(place.entries) - 1})):
        return "one of these entries does all of it"
    return None


class _EntriesApart:
    """The entries of a registry, taken one after the other."""

    def __init__(
        self,
        runs: EntryRuns,
        wanted: Wanted,
        tree: Tree,
        tell: Callable[[str], None],
        *,
        as_texts: bool,
    ) -> None:
        assert runs.place is not None  # noqa: S101  (it was found)
        self._runs, self._wanted, self._tree, self._tell = runs, wanted, tree, tell
        self._place, self._as_texts = runs.place, as_texts
        self._names = entry_runs.names(self._place, wanted.name)
        self._done: dict[int, tuple[Composed, tuple[int, ...], State]] = {}
        """Of each entry its mod, what it requires, and all that is done after it; in the order in which they go in."""
        self._idle: dict[int, str] = {}
        self._cache = SummaryCache()

    # --- one after the other

    def taken(self) -> EachMade:
        """Make the mods. Raises ``Refused`` for an entry that is none, by its line."""
        late: list[tuple[int, str]] = []
        todo = range(len(self._place.entries))
        for index in todo:
            self._tell(f"entry {index + 1} of {len(todo)}, {self._runs.count} runs")
            if why := self._take_one(index):
                late.append((index, why))
        for index, why in late:  # what it needs comes later in the registry
            if self._take_one(index):
                raise Refused(f"{self._where(index)}: {why}", hint=_WHOLE)
        for _ in todo:
            if self._union() == self._runs.truth:
                break
            self._mend()
        self._prove()
        return self._made()

    def _take_one(self, index: int) -> str | None:
        why = self._attempt(index, ())
        return self._with_others(index, why) if isinstance(why, str) else None

    def _mend(self) -> None:
        """Find the first entry that does another thing among the others than alone, and what it rests on."""
        order = list(self._done)
        low, high = 0, len(order) - 1
        while low < high:
            middle = (low + high) // 2
            if self._runs.of({*order[: middle + 1], *self._idle}) == self._done[order[middle]][2]:
                low = middle + 1
            else:
                high = middle
        first = order[low]
        old = self._done[first][1]
        for index in order[low:]:
            del self._done[index]
        why = self._with_others(first, "it does another thing among the others than alone")
        if why or self._done.get(first, (None, old))[1] == old:
            raise Refused(
                f"{self._where(first)}: {why or 'what it does is not its own'}", hint=_WHOLE
            )
        for index in order[low + 1 :]:
            if why := self._take_one(index):
                raise Refused(f"{self._where(index)}: {why}", hint=_WHOLE)

    def _with_others(self, index: int, why: str) -> str | None:
        """Find what an entry requires of those before it; return why it is none, None if it is one or idle."""
        union = self._union()
        among = self._runs.of({*self._done, *self._idle, index})
        if isinstance(among, str):
            return among
        if among == union:
            self._idle[index] = why.partition("; nothing was written")[0].partition("\n")[0]
            return None
        touched = {path for path in among if among.get(path) != union.get(path)}
        near = [one for one in self._done if touched & set(self._own(one))]
        for guess in filter(None, (self._named_in(index, near, among), near, [*self._done])):
            failed = self._attempt(index, tuple(guess), among)
            if failed is None:
                self._fewer(index, guess, among)
                return None
            why = failed
        return why

    def _fewer(self, index: int, needs: list[int], among: State) -> None:
        """Leave out what an entry does as well without; it is made with ``needs``."""
        size, tries, stale = max(1, len(needs) // 2), 0, False
        while tries < _TRIES and len(needs) > 1:
            for at in range(0, len(needs), size):
                fewer = needs[:at] + needs[at + size :]
                tries += 1
                stale = not fewer or self._attempt(index, tuple(fewer), among) is not None
                if not stale:
                    needs = fewer
                    break
            else:
                if size == 1:
                    break
                size //= 2
        if stale:
            self._attempt(index, tuple(needs), among)

    def _attempt(
        self, index: int, needs: tuple[int, ...], among: State | None = None
    ) -> str | None:
        """Make the mod of an entry on top of others; return why that does not go, None if it does.

        ``among`` is what all entries up to it do.
        """
        below = self.closure(needs)
        base, after = self._runs.of(below) if below else {}, self._runs.of({*below, index})
        if isinstance(base, str) or isinstance(after, str):
            return base if isinstance(base, str) else str(after)
        changes = between(self._tree, base, after)
        if not changes:
            return "alone it changes nothing"
        tree = LayeredTree(self._tree, between(self._tree, {}, base)) if base else self._tree
        wanted = self._wanted._replace(
            name=self._names[index],
            texts=self._place.entries[index].texts if self._as_texts else (),
            requires=self._named(needs),
        )
        self._done.pop(index, None)
        union = self._union()
        try:
            try:
                made = compose.compose(wanted, changes, {}, tree, cache=self._cache)
            except Refused:  # as texts it has no place that is proven, as a patch it may
                wanted = wanted._replace(texts=())
                made = compose.compose(wanted, changes, {}, tree, cache=self._cache)
        except VllmModsError as error:
            return error.message
        laid = _laid(made.mod, LayeredTree(self._tree, between(self._tree, {}, union)))
        if not laid.ok:
            return f"alone it is another change than behind those before it ({laid.verdict})"
        now = {**union, **{one.path: one.after for one in laid.changes}}
        if among is not None and now != among:
            return "it does another thing among the others"
        self._done[index] = made, needs, now
        return None

    # --- what is known

    def closure(self, needs: Iterable[int]) -> frozenset[int]:
        """Return entries with all that they require."""
        found = frozenset(needs)
        while more := {below for one in found for below in self._done[one][1]} - found:
            found |= more
        return found

    def _union(self) -> State:
        return next(reversed(self._done.values()))[2] if self._done else {}

    def _own(self, index: int) -> dict[str, FileChange]:
        return {one.path: one for one in self._done[index][0].planned.changes}

    def _named_in(self, index: int, near: Sequence[int], among: State) -> list[int]:
        """Return those before an entry that brought words which its texts or its changes have."""
        mine = set(_WORD.findall("\n".join(self._place.entries[index].texts).encode()))
        for change in between(self._tree, self._union(), among):
            before, after = (
                {*(data or b"").splitlines()} for data in (change.before, change.after)
            )
            mine |= set(_WORD.findall(b"\n".join(before ^ after)))

        def brought(change: FileChange) -> set[bytes]:
            before, after = (
                {*_WORD.findall(data or b"")} for data in (change.before, change.after)
            )
            return after - before

        changes = {one: self._own(one).values() for one in near}
        return [one for one in near if any(mine & brought(change) for change in changes[one])]

    def _named(self, needs: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._names[one] for one in sorted(needs))

    def _where(self, index: int) -> str:
        return f"{self._place.at(index)} ({self._names[index]})"

    # --- all together

    def _prove(self) -> None:
        """Hold all mods together against the whole run, and each that requires others against its entries alone."""
        if len(self._done) < 2:
            raise Refused(
                f"of these entries {len(self._done)} can be had apart from the others",
                hint=_WHOLE,
            )
        order = sorted(self._done)
        if self._laid(order[::-1]) != self._runs.truth:
            self._follow()
        plan = planner.plan([self._mod(one) for one in order], self._tree, cache=self._cache)
        together = {one.path: one.after for one in plan.changes}
        writes = all(one.verdict.writes for one in plan.mods)
        if not writes or not self._runs.truth == together == self._laid(order[::-1]):
            raise Refused(
                "its entries one by one give other bytes than the whole program", hint=_WHOLE
            )
        for index, (_, needs, _) in self._done.items():
            among = sorted({*self.closure(needs), index})
            if needs and self._laid(among) != self._runs.of(among):
                raise Refused(
                    f"{self._where(index)}: with what it requires it gives other bytes than its entries do",
                    hint=_WHOLE,
                )

    def _laid(self, order: Sequence[int]) -> State | None:
        """Put mods in, each behind those that it is to follow; None where one does not go."""
        view = LayeredTree(self._tree)
        for mod in dependencies.order([self._mod(one) for one in order]):
            done = _laid(mod, view)
            if not done.ok:
                return None
            view.lay(done.changes)
        return {one.path: one.after for one in view.changes()}

    def _follow(self) -> None:
        """Have each mod go in after the one before it that changes the same file."""
        last: dict[str, str] = {}
        for index in list(self._done):
            made, needs, now = self._done[index]
            after = {last[path] for path in self._own(index) if path in last}
            after -= {self._names[one] for one in needs}
            wanted = self._wanted._replace(
                name=self._names[index],
                requires=self._named(needs),
                after=tuple(sorted(after)),
            )
            version = f"vLLM {self._tree.version or self._tree.spec}"
            text = compose.written(wanted, [made.parts], version)
            files = {**made.files, mod_folder.MANIFEST: compose.encoded(text)}
            mod = mod_folder.load_files(wanted.name, files)
            self._done[index] = made._replace(files=files, mod=mod), needs, now
            last |= dict.fromkeys(self._own(index), self._names[index])

    def _mod(self, index: int) -> Mod:
        return self._done[index][0].mod

    def _made(self) -> EachMade:
        """Return the mods, in the order of the registry."""
        mods = []
        for index in sorted(self._done):
            made, needs, _ = self._done[index]
            where = self._place.at(index)
            mods.append(EntryMod(self._names[index], where, made.files, self._named(needs)))
        idle = tuple((self._where(index), why) for index, why in sorted(self._idle.items()))
        unknown = tuple(compose.unknown(self._wanted, self._tree.version))
        told = self._runs.whole.lost
        return EachMade(self._place.where, tuple(mods), idle, told, unknown, self._runs.count)


def _laid(mod: Mod, tree: LayeredTree) -> Attempt:
    """Put a mod in, whether or not it fits; how that goes is asked of all of them together."""
    (variant,) = mod.variants
    return patching.forward(variant, patching.parts_of(mod, variant, planner.WORKSPACE), tree)
