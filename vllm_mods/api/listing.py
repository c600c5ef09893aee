"""What libraries have, and what in them cannot be read."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from vllm_mods.base.errors import DiffError, ManifestError
from vllm_mods.base.model import Mod
from vllm_mods.formats import diff
from vllm_mods.formats.pairing import Pairing
from vllm_mods.library.catalog import Library

T = TypeVar("T")


class LibraryContents(NamedTuple):
    """The mods and pairings of libraries by name, and why others cannot be read."""

    mods: Mapping[str, Mod]
    pairings: Mapping[str, Pairing]
    faults: tuple[ManifestError, ...]


def list_library(library: Library) -> LibraryContents:
    """Read every mod of a library with its patches, and every pairing."""
    mods, faulty_mods = load_readable(library.names(), library.load)
    patches = filter(None, map(_faulty_patches, mods.values()))
    pairings, faulty_pairings = load_readable(library.pairing_names(), library.pairing)
    return LibraryContents(mods, pairings, (*faulty_mods, *patches, *faulty_pairings))


def load_readable(
    names: Iterable[str], load: Callable[[str], T]
) -> tuple[dict[str, T], list[ManifestError]]:
    """Return what can be loaded, and why the rest cannot."""
    loaded, faults = {}, []
    for name in names:
        try:
            loaded[name] = load(name)
        except ManifestError as error:
            faults.append(error)
    return loaded, faults


def _faulty_patches(mod: Mod) -> ManifestError | None:
    """Return what is wrong with a mod's patches, the first fault of each, if anything is."""
    problems = []
    for patch in dict.fromkeys(patch for variant in mod.variants for patch in variant.patches):
        try:
            diff.parse(patch.data, patch.source, root=patch.root)
        except DiffError as error:
            problems.append(error.message)
    return ManifestError(mod.directory, tuple(problems)) if problems else None
