"""The trees that variants were written for, out of the releases that can be read."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, lru_cache, partial

from vllm_mods.base import versions
from vllm_mods.base.errors import DiffError, VllmModsError
from vllm_mods.base.model import Mod, Variant
from vllm_mods.base.tree import PristineTree, Tree, TreeSource
from vllm_mods.formats import mod_lock
from vllm_mods.planning import carried_parts, patching, written
from vllm_mods.planning.known_trees import WORKSPACE

_MOST = 12
"""Releases to look at: what a range begins with is nearly always the one that its author had."""
_OPEN = 2  # releases that are kept open: one that was read whole takes 40 MB
_FILES = 8  # files of each release that are kept: a plan asks for those that a mod changes, again and again


class _Release(PristineTree):
    """A release that is opened for what is not remembered of it. ``opened`` gives it by its name."""

    def __init__(self, opened: Callable[[str], Tree], name: str) -> None:
        tree = opened(name)
        self.spec, self.version, self.pristine = tree.spec, tree.version, tree.pristine
        self._open = partial(opened, name)
        self._read = lru_cache(_FILES)(lambda path: self._open().read(path))

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        return self._read(path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths below a folder."""
        return self._open().paths(under)

    def load(self, paths: Collection[str]) -> None:
        """Have the files here."""
        self._open().load(paths)

    def layers(self) -> tuple[Tree, Mapping[str, bytes | None]]:
        """Return the release itself."""
        return self._open().layers()


class Origins:
    """Gives the release that a variant was written for: the one which mod.lock names, or the first of its range.

    Every hunk stands at its stated line there; where there is no such release, the first that takes all of them is given, and
    None if none does. ``missed`` tells that a release could
    not be read, so that another time there may be an answer.
    """

    def __init__(self, releases: TreeSource) -> None:
        self._releases = releases
        self._known: dict[tuple[str, str], str | None] = {}
        self._opened = cache(partial(_Release, lru_cache(_OPEN)(releases.open)))
        self.missed = False

    def __call__(self, mod: Mod, variant: Variant) -> Tree | None:
        """Return the origin of a variant. Raises ``DiffError`` for a bad patch."""
        key = (mod.digest, variant.id)
        own = variant.patches and not variant.package  # a release is nearest in what it has itself
        if key not in self._known:
            self._known[key] = self._find(mod, variant) if own else None
        found = self._known[key]
        return None if found is None else self._opened(found)

    def places(self, mod: Mod) -> tuple[mod_lock.WrittenFor, ...]:
        """Return where the hunks of a mod's variants stand in the releases that they were written for, as far as there are such."""
        places = []
        for variant in mod.variants:
            tree = self(mod, variant)
            parts = patching.parts_of(mod, variant, WORKSPACE)
            place = written.record(variant, parts, tree) if tree else None
            if place is None and variant.patches and not variant.package:
                place = written.record_parts(variant, parts, self._candidates(mod, variant))
            places += [place] if place else []
        return tuple(places)

    def _candidates(self, mod: Mod, variant: Variant) -> list[Tree]:
        """Return the releases of a variant's range, then those of the mod's other variants, as far as they can be read."""
        ranges = (variant, *(other for other in mod.variants if other.id != variant.id))
        names = [name for one in ranges for name in self._named(one)[:_MOST]]
        trees: list[Tree] = []
        for name in dict.fromkeys(names):
            with contextlib.suppress(VllmModsError):
                trees.append(self._opened(name))
        return trees

    def _named(self, variant: Variant) -> list[str]:
        inside = (one for one in self._releases.versions() if versions.in_range(one, variant.vllm))
        return sorted(inside, key=versions.sort_key)

    def _find(self, mod: Mod, variant: Variant) -> str | None:
        parts = tuple(part for part in patching.parts_of(mod, variant, WORKSPACE) if part.diff)
        nearly: str | None = None
        try:
            locked = mod_lock.parse(mod.lock, f"{mod.directory}/mod.lock") if mod.lock else None
            known = written.of_variant(locked.written if locked else (), variant)
            parts = written.attach(parts, known)
            base = known and known.base
            for version in sorted(self._named(variant), key=lambda one: one != base)[:_MOST]:
                tree = self._opened(version)
                if written.record(variant, parts, tree) is not None:
                    return version
                if nearly is None and carried_parts.changes_of(parts, tree) is not None:
                    nearly = version
        except DiffError:
            raise
        except VllmModsError:  # one that is none, or cannot be read, decides nothing
            self.missed = True
        return nearly
