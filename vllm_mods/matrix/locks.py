"""mod.lock from the answers of a matrix, and what a committed one says against them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mods import lock, locking
from vllm_mods.errors import ManifestError
from vllm_mods.matrix.cell import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vllm_mods.lock import Lock, LockedTree
    from vllm_mods.matrix.run import Computed
    from vllm_mods.model import Mod

_UPDATE = "`vllm-mods matrix --update-lock` writes it anew"


def lock_from(mod: Mod, computed: Iterable[Computed]) -> Lock:
    """Make a mod's lock: one entry per distinct state of the touched files.

    The answers must be those of the mod without its old lock.
    """
    labels: dict[LockedTree, list[str]] = {}
    witnesses: dict[LockedTree, list[str]] = {}
    others: list[tuple[str, str]] = []
    for one in computed:
        answer = one.answers[mod.name]
        version = one.version or "unknown"
        entry = answer.locked
        if entry is None:
            if answer.verdict.ok and (version, answer.verdict.value) not in others:
                others.append((version, answer.verdict.value))
            continue
        for kept, said in ((labels, version), (witnesses, answer.witness)):
            if said not in kept.setdefault(entry, []):
                kept[entry].append(said)
    trees = (
        entry._replace(vllm=tuple(labels[entry]), witness=tuple(witnesses[entry]))
        for entry in labels
    )
    return locking.of(mod, trees)._replace(others=tuple(others))


def against_committed(mods: Sequence[Mod], computed: Sequence[Computed]) -> tuple[Problem, ...]:
    """Hold the locks of ``mods`` (as committed) against answers that were made without them.

    Only what concerns the releases that were looked at is compared, so that a part of the matrix
    can be held against a whole lock.
    """
    return tuple(problem for mod in mods for problem in _of_mod(mod, computed))


def _of_mod(mod: Mod, computed: Sequence[Computed]) -> Iterator[Problem]:
    if mod.lock is None:
        yield Problem("stale-lock", mod.name, None, f"{mod.name} has no mod.lock: {_UPDATE}")
        return
    try:
        committed = lock.parse(mod.lock, f"{mod.directory}/mod.lock")
    except ManifestError as error:
        yield Problem("stale-lock", mod.name, None, f"{error.message}; {_UPDATE}")
        return
    fresh = lock_from(mod, computed)
    yield from _worse(mod, committed, fresh, computed)
    # a tree that could not be read says nothing of its releases
    unread = {one.version or "" for one in computed if not one.answers[mod.name].readable}
    seen = {one.version for one in computed if one.version is not None} - unread
    if committed.digest != mod.digest:
        message = f"mod.lock was made from another state of {mod.name}: {_UPDATE}"
        yield Problem("stale-lock", mod.name, None, message)
        return
    differing = _differing(_only(committed, seen), _only(fresh, seen))
    if differing:
        named = ", ".join(differing)
        message = f"mod.lock does not say what these releases are now ({named}): {_UPDATE}"
        yield Problem("stale-lock", mod.name, None, message)


def _worse(
    mod: Mod, committed: Lock, fresh: Lock, computed: Sequence[Computed]
) -> Iterator[Problem]:
    """Find trees on which the mod went in (or was not needed) by the lock, and does no more.

    Two builds of one release share its number: as many states as the lock has of it may be good.
    """
    for one in computed:
        answer = one.answers[mod.name]
        if answer.verdict.ok or not answer.readable or one.version is None:
            continue
        before, now = _good(committed, one.version), _good(fresh, one.version)
        if now < before:
            message = f"{mod.name} went in there by mod.lock, and now it is `{answer.verdict}`"
            yield Problem("worse-than-baseline", mod.name, one.spec, message)


def _good(of: Lock, version: str) -> int:
    return sum(version in tree.vllm for tree in of.trees) + sum(
        version == label for label, _ in of.others
    )


def _differing(committed: Lock, fresh: Lock) -> list[str]:
    """Return the releases of which two locks say different things, or the first knows too little."""
    was, now = _states(committed), _states(fresh)
    return sorted(
        {
            label
            for label, state in was.keys() | now.keys()
            if (label, state) not in was
            or (label, state) not in now
            or not now[label, state] <= was[label, state]
        }
    )


def _states(of: Lock) -> dict[tuple[str, LockedTree | str], frozenset[str]]:
    """Return, by release and state of its files, the witnesses that a lock has of it."""
    states: dict[tuple[str, LockedTree | str], frozenset[str]] = {
        (label, verdict): frozenset() for label, verdict in of.others
    }
    for tree in of.trees:
        bare = tree._replace(vllm=(), witness=())
        states |= {(label, bare): frozenset(tree.witness) for label in tree.vllm}
    return states


def _only(of: Lock, seen: set[str]) -> Lock:
    """Return the part of a lock that is about some releases."""
    trees = (
        tree._replace(vllm=tuple(label for label in tree.vllm if label in seen))
        for tree in of.trees
    )
    return of._replace(
        trees=tuple(tree for tree in trees if tree.vllm),
        others=tuple(other for other in of.others if other[0] in seen),
    )
