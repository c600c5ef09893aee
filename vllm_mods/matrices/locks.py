"""mod.lock from the cells of a matrix, and what a committed one says against them. Pure."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Mod
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import Lock, LockedTree, WrittenFor
from vllm_mods.matrices.cell import Cell, CellProblem
from vllm_mods.planning import lock_entries
from vllm_mods.planning.next_step import update_lock


def lock_from(mod: Mod, cells: Iterable[Cell], written: Iterable[WrittenFor] = ()) -> Lock:
    """Make a mod's lock: one entry per distinct state of the touched files, and where its variants were written.

    The cells must be those of the mod without its old lock.
    """
    mine = [one for one in cells if one.mod == mod.name]
    states = [(one.locked, one.version, one.witness) for one in mine if one.locked is not None]
    unlocked = (one for one in mine if one.locked is None and one.verdict.ok)
    others = {(one.version, one.verdict.value): None for one in unlocked}
    return lock_entries.of(mod, lock_entries.merge_states(states), others=others, written=written)


class Updated(NamedTuple):
    """A lock to write: what was looked at now, and the ``kept`` releases of the one before.

    ``lost`` are releases that the one before knew and that nothing is known of any more, ``why``
    says what was wrong with it.
    """

    lock: Lock
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    why: str | None = None


def update(mod: Mod, cells: Sequence[Cell], written: Sequence[WrittenFor] = ()) -> Updated:
    """Make a mod's lock from cells, and keep what the one it has says of all other releases.

    Nothing is kept of a lock that was made from another state of the mod, or that is none, but where patches were written
    that are the same now; ``written`` is what was found of that now.
    """
    if mod.lock is None:
        return Updated(lock_from(mod, cells, written))
    before = _committed(mod)
    if before is None:
        return Updated(lock_from(mod, cells, written), why="was not a lock file")
    fresh = lock_from(mod, cells, (*before.written, *written))
    looked_at = {one.version for one in cells if one.mod == mod.name}
    if before.digest != mod.digest:
        gone = _in_order(_labels(before) - looked_at)
        return Updated(fresh, lost=gone, why=f"was written before {mod.name} was changed")
    trees = {_bare(tree): tree for tree in fresh.trees}
    lost: set[str] = set()
    for tree in before.trees:
        rest = set(tree.vllm) - looked_at
        labels = {label for one in fresh.trees if _bare(one) == _bare(tree) for label in one.vllm}
        if not set(tree.vllm) & looked_at <= labels:
            # a witness says not which release it is of, and one of these is void now
            lost |= rest
        elif rest:
            same = trees.get(_bare(tree), tree._replace(vllm=()))
            every, witness = rest | set(same.vllm), dict.fromkeys((*tree.witness, *same.witness))
            trees[_bare(tree)] = tree._replace(vllm=_in_order(every), witness=tuple(witness))
    others = {*fresh.others, *(one for one in before.others if one[0] not in looked_at)}
    whole = fresh._replace(
        trees=tuple(sorted(trees.values(), key=lambda tree: versions.sort_key(tree.vllm[0]))),
        others=tuple(sorted(others, key=lambda other: (versions.sort_key(other[0]), other))),
    )
    kept = _labels(whole) - looked_at
    why = "had one entry for these and other releases, whose results now differ"
    return Updated(whole, _in_order(kept), _in_order(lost - kept), why if lost - kept else None)


def news(mods: Sequence[Mod], cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the releases of which new locks would say what the committed ones do not say of the same files."""
    by_name = {mod.name: mod for mod in mods}
    mine = (one for one in cells if one.mod in by_name)
    return tuple(dict.fromkeys(one.tree for one in mine if _is_news(by_name[one.mod], one)))


def _is_news(mod: Mod, cell: Cell) -> bool:
    before = _committed(mod)
    if before is None:
        return cell.readable
    if cell.locked is None:
        return cell.verdict.ok and (cell.version, cell.verdict.value) not in before.others
    files = {(file.path, file.before) for file in cell.locked.files}
    trees = (tree for tree in before.trees if cell.version in tree.vllm)
    return not any(files <= {(file.path, file.before) for file in tree.files} for tree in trees)


def _committed(mod: Mod) -> Lock | None:
    with contextlib.suppress(ManifestError):
        return mod_lock.parse(mod.lock or b"", f"{mod.directory}/mod.lock")
    return None


def _labels(of: Lock) -> set[str]:
    return {label for label, _ in _states(of)}


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(labels, key=lambda label: (versions.sort_key(label), label)))


def _bare(tree: LockedTree) -> LockedTree:
    return tree._replace(vllm=(), witness=())


def against_committed(mod: Mod, cells: Sequence[Cell]) -> Iterator[CellProblem]:
    """Hold the lock of a mod (as committed) against its cells, which were computed without it.

    Only what concerns the releases that were looked at is compared, so that a part of the matrix
    can be held against a whole lock.
    """
    committed = _committed(mod)
    if committed is None:
        yield _stale(mod, f"{mod.name} has no mod.lock that can be read:")
        return
    fresh = lock_from(mod, cells)
    yield from _worse(committed, fresh, cells)
    if committed.digest != mod.digest:
        yield _stale(mod, f"mod.lock was written before {mod.name} was changed:")
        return
    # a tree that could not be read says nothing of its releases
    seen = {one.version for one in cells} - {one.version for one in cells if not one.readable}
    was, now = _states(committed), _states(fresh)
    agreed = {key for key in was.keys() & now.keys() if now[key] <= was[key]}
    differing = {label for label, _ in (was.keys() | now.keys()) - agreed if label in seen}
    if differing:
        what = f"the current results of these releases ({', '.join(sorted(differing))})"
        yield _stale(mod, f"mod.lock lacks {what}:")


def _stale(mod: Mod, why: str) -> CellProblem:
    message = f"{why} `{update_lock(mod)}` updates it"
    return CellProblem(FindingCode.STALE_LOCK, mod.name, None, message)


def _worse(committed: Lock, fresh: Lock, cells: Iterable[Cell]) -> Iterator[CellProblem]:
    """Find trees on which the mod went in (or was not needed) by the lock, and does no more.

    Two builds of one release share its number: as many states as the lock has of it may be good.
    """
    before, now = (Counter(label for label, _ in _states(lock)) for lock in (committed, fresh))
    for cell in cells:
        is_bad = cell.readable and not cell.verdict.ok
        if is_bad and now[cell.version] < before[cell.version]:
            message = f"mod.lock says that {cell.mod} applied; now its verdict is `{cell.verdict}`"
            yield CellProblem(FindingCode.WORSE_THAN_BASELINE, cell.mod, cell.tree, message)


def _states(of: Lock) -> dict[tuple[str, LockedTree | str], frozenset[str]]:
    """Return, by release and state of its files, the witnesses that a lock has of it."""
    states: dict[tuple[str, LockedTree | str], frozenset[str]] = {
        (label, verdict): frozenset() for label, verdict in of.others
    }
    for tree in of.trees:
        bare = _bare(tree)
        states |= {(label, bare): frozenset(tree.witness) for label in tree.vllm}
    return states
