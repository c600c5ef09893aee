"""What of a folder is its library: read whole, and held to what others may expect of it, before anybody gets it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import ManifestError, UsageError, VllmModsError
from vllm_mods.base.model import Mod
from vllm_mods.formats import diff, pairing, pairing_lock
from vllm_mods.library import catalog, checksums, mod_folder, reading
from vllm_mods.linting import licence
from vllm_mods.sharing import library_tar


class SharedLibrary(NamedTuple):
    """A library that may be passed on: its files by path, its mods, the names of its pairings and templates."""

    files: dict[str, bytes]
    mods: tuple[Mod, ...]
    pairings: tuple[str, ...]
    templates: tuple[str, ...]


def read(folder: str) -> SharedLibrary:
    """Read a library from its folder; what is hidden, and caches, are no part of it.

    Raises ``UsageError`` for a folder that is none, ``ManifestError`` with everything that is wrong with
    its files, ``Refused`` where they are not those of its own list of hashes.
    """
    catalog.check_library(folder)
    folder = os.path.abspath(folder)
    return _checked(folder, files(folder))


def files(folder: str) -> dict[str, bytes]:
    """Return what of a folder is its library, by the paths in it. Raises ``UsageError``, ``ManifestError``."""
    found: dict[str, bytes] = {}
    size = 0
    for path in _paths(folder):
        place = os.path.join(folder, path)
        if why := library_tar.why_not(path):
            raise UsageError(f"{place} {why}, so it cannot be published", hint=f"ls -l {folder}")
        data = reading.read(place, folder)
        if data is None:
            continue  # SHA256SUMS and its signature need not be there
        found[path] = data
        size += len(data)
        if size > limits.LIBRARY or len(found) > limits.LIBRARY_FILES:
            raise UsageError(
                f"{folder} holds more than {limits.LIBRARY} or {limits.LIBRARY_FILES}, and that is the most "
                f"of {limits.LIBRARY.what}",
                hint=f"du -a {folder} | sort -n | tail",
            )
    return found


def _paths(folder: str) -> Iterator[str]:
    """Yield the paths of a library's files, in no particular order, and of the list that it may have."""

    def fail(error: OSError) -> None:
        place = error.filename or folder
        raise UsageError(f"{place} cannot be read: {error.strerror}", hint=f"ls -ld {place}")

    yield from library_tar.BESIDE
    for part in catalog.PARTS:
        top = os.path.join(folder, part)
        for above, folders, names in os.walk(top, onerror=fail) if os.path.lexists(top) else ():
            folders[:] = [one for one in folders if not library_tar.is_left_out(one)]
            links = [one for one in folders if os.path.islink(os.path.join(above, one))]
            own = [one for one in names if not library_tar.is_left_out(one)]
            yield from (os.path.relpath(os.path.join(above, one), folder) for one in own + links)


def _checked(folder: str, files: dict[str, bytes]) -> SharedLibrary:
    problems: list[str] = []
    mods = tuple(_mods(folder, files, problems))
    pairings = tuple(_pairings(folder, files, problems))
    if problems:
        raise ManifestError(folder, tuple(problems), hint=f"vllm-mods lint {folder}")
    if checksums.SUMS in files:
        listed = checksums.parse(files[checksums.SUMS], os.path.join(folder, checksums.SUMS))
        for path in files.keys() - set(library_tar.BESIDE):
            checksums.check(folder, os.path.join(folder, path), files[path], listed)
    templates = named(files, "templates", mod_folder.TEMPLATE)
    if not (mods or pairings or templates):
        raise UsageError(f"{folder} holds no mod, no template and no pairing", hint=f"ls {folder}")
    return SharedLibrary(files, mods, pairings, templates)


def _mods(folder: str, files: Mapping[str, bytes], problems: list[str]) -> Iterator[Mod]:
    """Yield the mods that can be read; what is wrong goes to ``problems``."""
    read_in = _reader(folder, files)
    for name in named(files, "patches", mod_folder.MANIFEST):
        place = os.path.join(folder, "patches", name)
        try:
            mod = mod_folder.load_mod(place, (folder, mod_folder.data_root()), read=read_in)
            for patch in (one for variant in mod.variants for one in variant.patches):
                diff.parse(patch.data, patch.source, root=patch.root)
        except VllmModsError as error:
            problems.append(error.message)
            continue
        if not licence.is_stated(mod.license):
            why = "does not say under which terms it may be passed on"
            problems.append(f"{place}: `{mod.license}` {why} [license-unstated]")
        yield mod


def _pairings(folder: str, files: Mapping[str, bytes], problems: list[str]) -> Iterator[str]:
    """Yield the names of the pairings that can be read; what is wrong, with a lock too, goes to ``problems``."""
    for path in sorted(path for path in files if path.startswith("pairings/")):
        place = os.path.join(folder, path)
        try:
            if path.endswith(".lock"):
                pairing_lock.parse(files[path], place)
            elif path.endswith(".toml"):
                name = pairing.parse(files[path], place).name
                if path != f"pairings/{name}.toml":
                    problems.append(f"{place}: name: {name!r} is not the name of its file")
                yield name
        except VllmModsError as error:
            problems.append(error.message)


def named(files: Iterable[str], part: str, file: str) -> tuple[str, ...]:
    """Return the names of the folders in a part that hold a file, sorted."""
    parts = (path.split("/") for path in files)
    return tuple(sorted(one[1] for one in parts if (one[0], one[2:]) == (part, [file])))


def _reader(folder: str, files: Mapping[str, bytes]) -> Callable[[str], bytes | None]:
    """Return what reads the library's own files as they will be published, and those of the tool."""
    bundled = reading.reader(mod_folder.data_root(), linked=mod_folder.data_root())
    own = os.path.join(folder, "")

    def read_in(path: str) -> bytes | None:
        return files.get(path.removeprefix(own)) if path.startswith(own) else bundled(path)

    return read_in
