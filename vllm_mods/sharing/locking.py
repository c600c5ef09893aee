"""A project's libraries as its lock has them: fetched, kept, and opened to read."""

import os
import re

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats import project_lock
from vllm_mods.formats.project import LibrarySource, ProjectFile
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.library import checksums, reading
from vllm_mods.library.catalog import Shared
from vllm_mods.sharing import contents, kept
from vllm_mods.sharing.kept import FetchedLibrary, KeptLibrary

LOCK = "vllm-mods.lock"
_GROUP = "vllm_mods.libraries"
"""The entry points by which an installed distribution says in which package its library is."""


def lock_path(project: ProjectFile) -> str:
    """Return where a project's lock lies: beside its file."""
    return os.path.join(os.path.dirname(project.where), LOCK)


def read(project: ProjectFile) -> dict[str, LockedLibrary]:
    """Read a project's lock, nothing where there is none. Raises ``ManifestError``."""
    where = lock_path(project)
    data = reading.read(where, None)
    return {} if data is None else project_lock.parse(data, where)


def _entry(project: ProjectFile, name: str, lock: dict[str, LockedLibrary]) -> LockedLibrary:
    """Return what the lock has of a library. Raises ``UsageError`` where that does not fit the file."""
    source, locked = project.libraries[name], lock.get(name)
    is_commit = re.fullmatch("[0-9a-f]{40}|[0-9a-f]{64}", source.rev)
    if locked and locked.source == source and (not is_commit or locked.resolved == source.rev):
        return locked
    why = f"{project.where} names {source} for library {name}, but {lock_path(project)} has no entry for this source, revision and signers"
    raise UsageError(why, hint=f"vllm-mods update {name}  # writes the lock for the present source")


def resolve(
    project: ProjectFile, name: str, source: LibrarySource, locked: LockedLibrary | None = None
) -> LockedLibrary:
    """Fetch a library as it is now, or as it is ``locked``, and keep it. Nothing is written to the project.

    Raises ``Refused`` for one that is not as it was locked or that nobody of its signers has signed,
    ``UsageError`` and ``TreeError`` for one that cannot be had.
    """
    fetched = _fetched(project, source, None if locked is None else locked.resolved)
    now = kept.lock(source, fetched)
    if locked is not None and now != locked:
        has, was = (
            f"{x.resolved} and sha256:{x.files}".removeprefix(" and ") for x in (now, locked)
        )
        why = f"{name} ({source}) differs from {lock_path(project)}: it is now {has}, not {was}; nothing was changed"
        hint = f"vllm-mods update {name}  # accepts the change, if you know why it was made"
        raise Refused(why, hint=hint)
    _check_signature(project, source, kept.keep(now, fetched))
    return now


def open_shared(project: ProjectFile, *, fetching: bool = False) -> tuple[Shared, ...]:
    """Open a project's libraries: folders as they stand, all else as it is locked and kept.

    What is kept has to be what the lock says: the files of the commit, and signed. If ``fetching``, what is not kept is
    fetched, and folders are held to the lock. Raises ``UsageError`` for a library that is not here, and as ``resolve``.
    """
    lock = read(project)
    return tuple(_opened(project, name, lock, fetching=fetching) for name in project.libraries)


def _opened(
    project: ProjectFile, name: str, lock: dict[str, LockedLibrary], *, fetching: bool
) -> Shared:
    source = project.libraries[name]
    if source.kind == "path" and not fetching:
        folder = os.path.join(os.path.dirname(project.where), source.place)
        signers = _signers(project, source)
        return Shared(name, folder, checksums.sums(folder, (), signers) if signers else None)
    locked = _entry(project, name, lock)
    if fetching and (source.kind == "path" or kept.open_kept(locked) is None):
        resolve(project, name, source, locked)
    library = kept.open_kept(locked)
    if library is None:
        why = f"{name} ({source}) has not been fetched on this machine, or the fetched files were changed"
        hint = "vllm-mods sync --fetch  # fetches all libraries of the project at their locked versions"
        raise UsageError(why, hint=hint)
    _check_signature(project, source, library)
    return Shared(name, *library)


def _fetched(project: ProjectFile, source: LibrarySource, commit: str | None) -> FetchedLibrary:
    """Return a library as its source has it; ``commit`` is which one of a repository, None for the newest."""
    beside = os.path.dirname(project.where)
    if source.kind == "git":
        from vllm_mods.sharing import repositories  # noqa: PLC0415  (GitPython: 100 ms)

        return repositories.fetch(source, beside, commit)
    version, folder = "", os.path.join(beside, source.place)
    if source.kind == "package":
        version, folder = _installed(source.place)
    return FetchedLibrary(version, contents.read_files(folder))


def _installed(name: str) -> tuple[str, str]:
    """Return the version of an installed distribution, and the folder of the package that its entry point names.

    The package is found, and nothing of it is imported. Raises ``UsageError``.
    """
    from importlib import metadata  # noqa: PLC0415  (slow, as the others here)
    from importlib.machinery import PathFinder  # noqa: PLC0415

    from packaging.version import parse as parse_version  # noqa: PLC0415

    try:
        distribution = metadata.distribution(name)
        packages = [one.value for one in distribution.entry_points.select(group=_GROUP)]
        version = distribution.version if "Version" in distribution.metadata else ""
        parse_version(version)
    except metadata.PackageNotFoundError as error:
        why = f"package:{name}: it is not installed beside vllm-mods"
        raise UsageError(why, hint=f"pip install {name}") from error
    except (ValueError, TypeError) as error:  # no UTF-8, no entry points, no version
        why = f"package:{name}: its installation record is damaged: {error}"
        raise UsageError(why, hint=f"pip install --force-reinstall {name}") from error
    top, *below = parts = packages[0].split(".") if len(packages) == 1 else [""]
    spec = PathFinder.find_spec(top)  # runs no code of it
    places = spec.submodule_search_locations or () if spec else ()
    folders = (os.path.join(place, *below) for place in places if all(map(str.isidentifier, parts)))
    folder = next(filter(os.path.isdir, folders), None)
    if folder is None:
        why = f"package:{name}: {version} has no library: {_GROUP} in its entry points must name one existing package"
        hint = f"pip install --force-reinstall {name}, or name another distribution"
        raise UsageError(why, hint=hint)
    return version, folder


def _signers(project: ProjectFile, source: LibrarySource) -> str | None:
    beside = os.path.dirname(project.where)
    return os.path.join(beside, source.allowed_signers) if source.allowed_signers else None


def _check_signature(project: ProjectFile, source: LibrarySource, library: KeptLibrary) -> None:
    """Raise ``Refused`` unless each file has the hash that a list says which one of the signers has signed."""
    if (signers := _signers(project, source)) is None:
        return
    signed = checksums.sums(library.folder, (), signers)
    for path, digest in library.listed.items():
        if path not in contents.BESIDE and signed.get(path) != digest:
            why = f"{source}: {path} has the hash sha256:{digest}, but the signed {checksums.SUMS} does not list that hash; nothing was changed"
            raise Refused(why, hint="ask its author to sign the files as they are")
