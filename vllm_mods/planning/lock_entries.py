"""What a plan adds to a mod.lock. Pure."""

from collections.abc import Iterable, Sequence

from vllm_mods.base.model import Mod, ModPlan, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import is_final
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import Lock, LockedHunk, LockedTree, WrittenFor
from vllm_mods.formats.receipt import hashes
from vllm_mods.library import mod_folder
from vllm_mods.planning import known_trees, patching, written as written_places
from vllm_mods.planning.layered_tree import LayeredTree


def entry(planned: ModPlan) -> LockedTree | None:
    """Return what a lock says of a plan but its version and witness; None if nothing is written."""
    if not planned.verdict.writes or planned.variant is None:
        return None
    places = ((one.patch, one.path, one.number, one.line, one.scope) for one in planned.hunks)
    return LockedTree(
        vllm=(),
        in_range=planned.in_range,
        variant=planned.variant.id,
        verdict=planned.verdict.value,
        files=hashes(planned.changes),
        hunks=tuple(LockedHunk(*place) for place in places),
        beside=planned.beside,
        witness=(),
        proof=planned.proof,
    )


def of(
    mod: Mod,
    trees: Iterable[LockedTree],
    *,
    others: Iterable[tuple[str, str]] = (),
    written: Iterable[WrittenFor] = (),
) -> Lock:
    """Return a mod's lock with these trees, and of ``written`` what is of its variants with the patches that they have."""
    places = tuple(written)
    known = (written_places.of_variant(places, variant) for variant in mod.variants)
    return Lock(
        mod=mod.name,
        version=mod.version,
        digest=mod.digest,
        trees=tuple(trees),
        others=tuple(others),
        written=tuple(place for place in known if place is not None),
    )


def first(mod: Mod, plans: Iterable[tuple[ModPlan, Tree]]) -> dict[str, bytes]:
    """Return a new mod's lock by its name, if it says anything: where its variants were written, and those trees that are releases as shipped."""
    states: list[tuple[LockedTree, str, str]] = []
    places: dict[str, WrittenFor] = {}
    for planned, tree in plans:
        known = entry(planned)
        if known is None:
            continue
        if planned.in_range or known.variant not in places:
            places |= {place.variant: place for place in _places(planned, tree)}
        known_before = ((one.path, one.before) for one in planned.changes if one.before is not None)
        released = (tree.pristine or tree.is_released(*one) for one in known_before)
        if tree.version is not None and is_final(tree.version) and all(released):
            states.append((known, tree.version, planned.witness))
    if not (states or places):
        return {}
    return {mod_folder.LOCK: mod_lock.dump(of(mod, merge_states(states), written=places.values()))}


def _places(planned: ModPlan, tree: Tree, base: str | None = None) -> tuple[WrittenFor, ...]:
    """Return where the variant of a plan was written, if that was the tree of the plan, as it was before."""
    before = (change._replace(after=change.before) for change in planned.changes)
    own = tuple(variant for variant in planned.mod.variants if variant == planned.variant)
    return places_in(planned.mod._replace(variants=own), LayeredTree(tree, before), base)


def places_in(mod: Mod, tree: Tree, base: str | None = None) -> tuple[WrittenFor, ...]:
    """Return what ``written.record`` does, of each variant that was written for a tree."""
    with_parts = ((one, patching.parts_of(mod, one, known_trees.WORKSPACE)) for one in mod.variants)
    places = (written_places.record(variant, parts, tree, base) for variant, parts in with_parts)
    return tuple(place for place in places if place is not None)


def merge_states(entries: Iterable[tuple[LockedTree, str, str]]) -> tuple[LockedTree, ...]:
    """Return each state of files once, with the versions and the witnesses that were found of it."""
    states: dict[LockedTree, tuple[dict[str, None], dict[str, None]]] = {}
    for state, version, witness in entries:
        versions, witnesses = states.setdefault(state, ({}, {}))
        versions[version] = witnesses[witness] = None
    rows = ((state, tuple(names), tuple(seen)) for state, (names, seen) in states.items())
    return tuple(state._replace(vllm=names, witness=seen) for state, names, seen in rows)


def current(mod: Mod) -> Lock | None:
    """Return a mod's lock if it was made from this very mod. Raises ``ManifestError`` for none."""
    locked = mod_lock.parse(mod.lock, f"{mod.directory}/mod.lock") if mod.lock is not None else None
    return locked if locked is not None and locked.digest == mod.digest else None


def proven(planned: ModPlan) -> Mod:
    """Return the mod of a plan with its lock, which says of the tree of the plan, too, where each hunk went."""
    locked, known = current(planned.mod), entry(planned)
    if known is None or planned.vouched:
        return planned.mod
    own = locked or of(planned.mod, ())
    here = known._replace(witness=(planned.witness,))
    return planned.mod._replace(lock=mod_lock.dump(own._replace(trees=(here, *own.trees))))


def without_trees(mod: Mod) -> Mod:
    """Return a mod whose lock vouches for no tree, and still says where its variants were written."""
    locked = current(mod)
    return mod._replace(lock=mod_lock.dump(locked._replace(trees=())) if locked else None)


def with_variants(mod: Mod, variants: Sequence[Variant]) -> Mod:
    """Return a mod with some of its variants alone, and what its lock says of these."""
    locked = current(mod)
    known = {variant.id for variant in variants}
    trees = tuple(tree for tree in (locked.trees if locked else ()) if tree.variant in known)
    lock = mod_lock.dump(locked._replace(trees=trees)) if locked else mod.lock
    return mod._replace(variants=tuple(variants), lock=lock)


def extend(old: Lock, mod: Mod, planned: ModPlan, tree: Tree, version: str) -> bytes:
    """Return the lock of a mod that has a variant more, which was planned on the tree of a version.

    What the old lock says of the other variants holds: none of their files is another.
    """
    trees, places = old.trees, old.written
    if (locked := entry(planned)) is not None:
        trees += (locked._replace(vllm=(version,), witness=(planned.witness,)),)
        places += _places(planned, tree, version)
    return mod_lock.dump(of(mod, trees, others=old.others, written=places))
