"""What a plan adds to a mod.lock. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import is_final
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import Lock, LockedHunk, LockedTree
from vllm_mods.formats.receipt import hashes


def entry(planned: ModPlan) -> LockedTree | None:
    """Return what a lock says of a plan, without its version and witness; None if nothing is written."""
    if not planned.verdict.writes or planned.variant is None:
        return None
    return LockedTree(
        vllm=(),
        in_range=planned.in_range,
        variant=planned.variant.id,
        verdict=planned.verdict.value,
        files=hashes(planned.changes),
        hunks=tuple(
            LockedHunk(hunk.patch, hunk.path, hunk.number, hunk.line, hunk.scope)
            for hunk in planned.hunks
        ),
        beside=planned.beside,
        witness=(),
        proof=planned.proof or "static",
    )


def of(mod: Mod, trees: Iterable[LockedTree]) -> Lock:
    """Return a mod's lock with these trees."""
    return Lock(
        mod=mod.name,
        version=mod.version,
        digest=mod.digest,
        manifest_sha256=sha256(mod.manifest) or "",
        manifest=tomllib.loads(mod.manifest.decode()),
        trees=tuple(trees),
    )


def first(mod: Mod, planned: ModPlan, tree: Tree) -> bytes | None:
    """Return a new mod's lock with the tree that it was made on.

    None where nothing says that the files there are the release's, or it names none.
    """
    known = entry(planned)
    if known is None or tree.version is None or not is_final(tree.version):
        return None
    for change in planned.changes:
        shipped = (
            change.before is None or tree.pristine or tree.is_released(change.path, change.before)
        )
        if not shipped:
            return None
    found = known._replace(vllm=(tree.version,), witness=(planned.witness,))
    return mod_lock.dump(of(mod, [found]))


def merged(found: Iterable[tuple[LockedTree, str, str]]) -> tuple[LockedTree, ...]:
    """Return each state of files once, with the versions and the witnesses that were found of it."""
    states: dict[LockedTree, tuple[dict[str, None], dict[str, None]]] = {}
    for state, version, witness in found:
        versions, witnesses = states.setdefault(state, ({}, {}))
        versions[version] = witnesses[witness] = None
    return tuple(
        state._replace(vllm=tuple(versions), witness=tuple(witnesses))
        for state, (versions, witnesses) in states.items()
    )


def current(mod: Mod) -> Lock | None:
    """Return a mod's lock if it was made from this very mod. Raises ``ManifestError`` for none."""
    locked = mod_lock.parse(mod.lock, f"{mod.directory}/mod.lock") if mod.lock is not None else None
    return locked if locked is not None and locked.digest == mod.digest else None


def extended(old: Lock, mod: Mod, plans: Iterable[tuple[str, ModPlan]]) -> bytes:
    """Return the lock of a mod that has more variants, with the versions that these were planned on.

    What the old lock says of the other variants holds: none of their files is another.
    """
    more = [
        found._replace(vllm=(version,), witness=(planned.witness,))
        for version, planned in plans
        if (found := entry(planned)) is not None
    ]
    return mod_lock.dump(of(mod, (*old.trees, *more))._replace(others=old.others))
