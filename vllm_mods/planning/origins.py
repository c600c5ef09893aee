"""The trees that variants were written for, out of the releases that can be read."""

from __future__ import annotations

from vllm_mods.base import versions
from vllm_mods.base.errors import DiffError, VllmModsError
from vllm_mods.base.model import Mod, Variant
from vllm_mods.base.tree import Tree, TreeSource
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import WrittenFor
from vllm_mods.planning import carried_parts, patching, written
from vllm_mods.planning.known_trees import WORKSPACE
from vllm_mods.planning.layered_tree import LayeredTree

_MOST = 12
"""Releases to look at: what a range begins with is nearly always the one that its author had."""


def _recorded(mod: Mod, variant: Variant) -> str | None:
    """Return the release that mod.lock says a variant was written for."""
    locked = mod_lock.parse(mod.lock, f"{mod.directory}/mod.lock") if mod.lock else None
    place = locked and written.of_variant(locked.written, variant)
    return place.base if place else None


class Origins:
    """Gives the release that a variant was written for: the one which mod.lock names, or the first of its range.

    Every hunk stands at its stated line there; where there is no such release, the first that takes all of them is given, and
    None if none does. ``missed`` tells that a release could
    not be read, so that another time there may be an answer.
    """

    def __init__(self, releases: TreeSource) -> None:
        self._releases = releases
        self._known: dict[tuple[str, str], Tree | None] = {}
        self._trees: dict[str, LayeredTree] = {}
        self.missed = False

    def __call__(self, mod: Mod, variant: Variant) -> Tree | None:
        """Return the origin of a variant. Raises ``DiffError`` for a bad patch."""
        key = (mod.digest, variant.id)
        own = variant.patches and not variant.package  # a release is nearest in what it has itself
        if key not in self._known:
            self._known[key] = self._find(mod, variant) if own else None
        return self._known[key]

    def places(self, mod: Mod) -> tuple[WrittenFor, ...]:
        """Return where the hunks of a mod's variants stand in the releases that they were written for, as far as there are such."""
        found = []
        for variant in mod.variants:
            tree = self(mod, variant)
            parts = patching.parts_of(mod, variant, WORKSPACE)
            place = written.record(variant, parts, tree) if tree else None
            found += [place] if place else []
        return tuple(found)

    def _find(self, mod: Mod, variant: Variant) -> Tree | None:
        parts = tuple(
            part for part in patching.parts_of(mod, variant, WORKSPACE) if part.diff is not None
        )
        nearly: Tree | None = None
        try:
            named = {
                version
                for version in self._releases.versions()
                if versions.in_range(version, variant.vllm)
            }
            known = _recorded(mod, variant)
            for version in sorted(named, key=lambda v: (v != known, versions.sort_key(v)))[:_MOST]:
                if version not in self._trees:
                    self._trees[version] = LayeredTree(self._releases.open(version))
                tree = self._trees[version]
                if written.record(variant, parts, tree) is not None:
                    return tree
                if nearly is None and carried_parts.changes_of(parts, tree) is not None:
                    nearly = tree
        except DiffError:
            raise
        except VllmModsError:  # one that is none, or cannot be read, decides nothing
            self.missed = True
        return nearly
