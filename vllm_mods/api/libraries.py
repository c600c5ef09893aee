"""The libraries that a call reads: the bundled one, the caller's folders, those of the project here; and what they have."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from vllm_mods.applying import ground
from vllm_mods.applying.opening import open_tree
from vllm_mods.base.errors import DiffError, ManifestError, Refused, UsageError
from vllm_mods.base.model import Mod, Variant
from vllm_mods.formats import diff
from vllm_mods.formats.pairing import Pairing
from vllm_mods.library import mod_path, project_file, trust
from vllm_mods.library.catalog import Library, Shared

T = TypeVar("T")
_PLACES, _PATCHES = ("/", "./", "../", "~/"), (".patch", ".diff")
"""How a mod is named by where it lies, and not by a name of a library."""


def open_library(*folders: str | os.PathLike[str]) -> Library:
    """Open the bundled library, ``folders`` and, as ``vllm-mods.lock`` has them, those of the project here.

    Returns a ``Library``. Raises ``UsageError`` for a folder that is none and a library that is not fetched,
    ``Refused`` for one that is not as it is locked.

    >>> vm.open_library("library").mods("fast")
    (<Mod fast 1.0.0>,)
    """
    shared: tuple[Shared, ...] = ()
    project = project_file.find()
    if project is not None and project.libraries:
        from vllm_mods.sharing import locking  # noqa: PLC0415  (where there are any)

        shared = locking.open_shared(project)
    return Library(*folders, shared=shared)


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


class Chosen(NamedTuple):
    """The mods that a call is about, and the pairing that was named with them."""

    mods: tuple[Mod, ...]
    pairing: Pairing | None


def choose(
    library: Library, names: Sequence[str], pairing: str | None, *, target: str | None = None
) -> Chosen:
    """Read a pairing's mods and the named ones, or without either the default ones.

    A mod may be named by its folder too, or be a patch alone, where it does not go into anything. ``target`` is the
    folder that they are to go into. A name that no library has is looked up there, since
    it keeps each mod as it went in; and the pairing has to be trusted. Raises ``UsageError`` where no
    mod is left, ``Refused`` for a pairing that no policy vouches for.
    """
    paths = [name for name in names if _is_place(name, library)]
    by_place: list[Mod] = []
    if paths:
        if target is not None:
            why = f"{paths[0]} is a path; `apply` takes the name of a mod"
            raise UsageError(why, hint=mod_path.naming(paths[0]))
        by_place = [mod for path in paths for mod in mod_path.load(path, library)]
    names = [name for name in names if name not in paths]
    paired = None if pairing is None else library.pairing(pairing)
    if pairing is not None and target is not None:
        trust.demand_pairing(library, pairing)
    in_target: tuple[Mod, ...] = ()
    unknown = [name for name in names if not library.has(name)]
    if target is not None and unknown:
        in_target = _kept_in(target, unknown)
        names = [name for name in names if name not in {mod.name for mod in in_target}]
    if paired is not None:
        names = (*library.mods_of(paired), *names)
    elif not names and not in_target and not paths and not (names := library.defaults()):
        raise UsageError("no mod was named, and no mod is marked as default", hint="vllm-mods list")
    return Chosen((*library.select(names), *in_target, *by_place), paired)


def _is_place(name: str, library: Library) -> bool:
    is_folder = "/" in name and os.path.isdir(name) and not library.has(name)
    return is_folder or name.startswith(_PLACES) or name.endswith(_PATCHES)


def _kept_in(target: str, names: Sequence[str]) -> tuple[Mod, ...]:
    """Return those of the named mods that went into a tree, as they were then; none where there is no tree."""
    try:
        tree, state = open_tree(target, None, recovering=None)
    except UsageError:
        return ()  # reported by whoever needs the tree
    return tuple(ground.kept_mod(tree, entry.name) for entry in state.mods if entry.name in names)


def other_packages(named: Sequence[str], mods: Iterable[Mod] | None = None) -> Mapping[str, str]:
    """Read ``NAME==VERSION``; with ``mods``, raise ``UsageError`` for a package that none of them changes."""
    if not named:
        return {}
    from vllm_mods.trees.other_packages import check_versions, parse_versions  # noqa: PLC0415

    versions = parse_versions(tuple(named))
    return versions if mods is None else check_versions(versions, tuple(mods))


def find_variant(mod: Mod, name: str) -> Variant:
    """Return a variant of a mod by its id. Raises ``UsageError`` if it has no such one."""
    variants = {variant.id: variant for variant in mod.variants}
    if name not in variants:
        why = f"{mod.name} has no variant `{name}`"
        raise UsageError(why, hint=f"--variant {' or '.join(variants)}")
    return variants[name]


def check_own_mod(library: Library, mod: Mod) -> None:
    """Raise ``UsageError`` for a mod of the installation: another version of the tool has another."""
    place = f"mods/patches/my-{mod.name}"
    copying = f"""mkdir -p mods/patches && cp -r {shlex.quote(mod.directory)} {place}
  sed -i 's/^name = .*/name = "my-{mod.name}"/' {place}/mod.toml
  vllm-mods matrix my-{mod.name} --update-lock --library mods"""
    _check_own(library, mod.name, mod.directory, copying)


def check_own_pairing(library: Library, name: str) -> None:
    """Raise ``UsageError`` for a pairing of the installation, ``Refused`` for one that cannot be written."""
    file = library.pairing_file(name)
    copying = f"""mkdir -p mods/pairings
  sed 's/^name = .*/name = "my-{name}"/' {file} >mods/pairings/my-{name}.toml
  vllm-mods lock my-{name} --library mods"""
    _check_own(library, name, file, copying)
    if not os.access(os.path.dirname(file), os.W_OK):
        raise Refused(f"{file} cannot be written; nothing was changed", hint=f"ls -l {file}")


def _check_own(library: Library, name: str, path: str, copying: str) -> None:
    if not library.is_writable(path):
        why = f"{name} is bundled with vllm-mods, so {path} is not changed; nothing was written"
        raise UsageError(why, hint=f"make a copy of your own:\n  {copying}")
