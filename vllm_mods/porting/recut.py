"""A variant's patches cut anew, on the base that mod.lock records. What they do stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange, Mod, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.formats import diff, diff_writer, mod_lock
from vllm_mods.formats.mod_lock import Lock, LockedTree, WrittenFor
from vllm_mods.library import mod_folder, reading
from vllm_mods.planning import lock_entries, planner
from vllm_mods.porting import variant as making


class Recut(NamedTuple):
    """New files of a mod, none if nothing would change, and the releases that were looked at."""

    files: dict[str, bytes]
    releases: tuple[str, ...]


def run(mod: Mod, variant: Variant, opener: Callable[[str], Tree], roots: Sequence[str]) -> Recut:
    """Cut a variant's patches anew: line numbers, three lines of context, section headers.

    More context is taken until every release that mod.lock records gets the very bytes it did.
    Raises ``UsageError`` without a lock of the mod as it is, ``Refused`` where no context does.
    """
    locked = lock_entries.current(mod)
    states = making.states(locked, variant)
    if locked is None or not states:
        raise UsageError(
            f"nothing records what variant `{variant.id}` of {mod.name} was written for",
            hint=f"vllm-mods matrix {mod.name} --update-lock",
        )
    exact = (version for version, tree in states if tree.verdict == "applies")
    base = opener(next(exact, states[0][0]))
    changes = making.changes_of(mod, variant, base)
    trees = {version: opener(version) for version, _ in states}
    for context in diff_writer.CONTEXTS:
        files = _files(variant, changes, context)
        if all(
            reading.read(f"{mod.directory}/{name}", mod.directory) == data
            for name, data in files.items()
        ):
            return Recut({}, tuple(trees))
        new = making.load_mod(mod, files, roots)
        entries = _same(new, variant, states, trees)
        if entries is not None:
            others = [tree for tree in locked.trees if tree.variant != variant.id]
            order = {one.id: n for n, one in enumerate(mod.variants)}
            kept = sorted([*others, *entries], key=lambda tree: order[tree.variant])
            places = _places(new, variant, base, locked)
            lock = lock_entries.of(new, kept, others=locked.others, written=places)
            files[mod_folder.LOCK] = mod_lock.dump(lock)
            return Recut(files, tuple(trees))
    raise Refused(
        f"variant `{variant.id}` of {mod.name}: no patches with up to {diff_writer.CONTEXTS[-1]} lines of context do "
        "the same on every release that mod.lock records; nothing was written",
        hint=f"vllm-mods matrix {mod.name}",
    )


def _places(mod: Mod, variant: Variant, base: Tree, locked: Lock) -> tuple[WrittenFor, ...]:
    """Return where all variants were written, the one that was cut anew in its base."""
    new = next(one for one in mod.variants if one.id == variant.id)
    place = lock_entries.record(planner.plan_alone(mod, base, new), base.version or base.spec)
    return (*locked.written, *([place] if place else []))


def _files(variant: Variant, cuts: Sequence[FileChange], context: int) -> dict[str, bytes]:
    """Return each patch of the variant, what stands above its first file kept."""
    files = {}
    for patch in variant.patches:
        paths = diff.paths_of(patch, patch.source)
        pieces = [
            diff_writer.file_diff(cut.path, cut.before, cut.after, context=context)
            for cut in cuts
            if cut.path in paths
        ]
        starts = [at for mark in (b"diff --git ", b"--- ") if (at := patch.data.find(mark)) >= 0]
        files[patch.source] = patch.data[: min(starts)] + b"".join(pieces)
    return files


def _same(
    mod: Mod,
    variant: Variant,
    states: Sequence[tuple[str, LockedTree]],
    trees: dict[str, Tree],
) -> tuple[LockedTree, ...] | None:
    """Plan the new patches on every recorded release; None unless each gives what it gave before."""
    new = next(one for one in mod.variants if one.id == variant.id)
    entries: list[tuple[LockedTree, str, str]] = []
    for version, state in states:
        planned = planner.plan_alone(mod, trees[version], new)
        after = {change.path: sha256(change.after) for change in planned.changes}
        entry = lock_entries.entry(planned)
        if entry is None or after != {file.path: file.after for file in state.files}:
            return None
        entries.append((entry, version, planned.witness))
    return lock_entries.merge_states(entries)
