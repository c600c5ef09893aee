"""A project's libraries as its lock has them: fetched, kept, and opened to read."""

from __future__ import annotations

import os

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats import project_lock
from vllm_mods.formats.project import LibrarySource, ProjectFile
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.library import catalog, checksums, reading
from vllm_mods.library.catalog import Shared
from vllm_mods.sharing import contents, kept

LOCK = "vllm-mods.lock"


class NotFetched(UsageError):
    """A library is not on this machine."""


def place(project: ProjectFile) -> str:
    """Return where a project's lock lies: beside its file."""
    return os.path.join(os.path.dirname(project.where), LOCK)


def read(project: ProjectFile) -> dict[str, LockedLibrary]:
    """Read a project's lock, nothing where there is none. Raises ``ManifestError``."""
    where = place(project)
    data = reading.read(where, None) if os.path.lexists(where) else None
    return {} if data is None else project_lock.parse(data, where)


def entry(project: ProjectFile, name: str, lock: dict[str, LockedLibrary]) -> LockedLibrary:
    """Return what the lock has of a library. Raises ``UsageError`` where that does not fit the file."""
    locked = lock.get(name)
    if locked is None or locked.source != project.libraries[name]:
        has = "it not" if locked is None else str(locked.source)
        if locked is not None and has == str(project.libraries[name]):
            has += ", signed by others or by nobody"
        raise UsageError(
            f"library {name} is {project.libraries[name]} in {project.where}, and {place(project)} has {has}",
            hint=f"vllm-mods update {name}  # resolves it, and writes the lock",
        )
    return locked


def resolved(
    project: ProjectFile, name: str, source: LibrarySource, locked: LockedLibrary | None = None
) -> LockedLibrary:
    """Fetch a library as it is now, or as it is ``locked``, and keep it. Nothing is written to the project.

    Raises ``Refused`` for one that is not as it was locked or that nobody of its signers has signed,
    ``UsageError`` and ``TreeError`` for one that cannot be had.
    """
    commit = None if locked is None else locked.resolved
    found, files = _fetched(project, source, commit)
    digest = kept.keep(files, str(source))
    if locked is not None and digest != locked.files:
        raise Refused(
            f"{name} ({source}) is not what {place(project)} has: {found or 'its files'} and sha256:{digest}, "
            f"and not {locked.resolved} and sha256:{locked.files}; nothing was changed",
            hint=f"vllm-mods update {name}  # takes it as it is now, if you know why it has changed",
        )
    _signed(project, source, digest)
    return LockedLibrary(source, found, digest)


def shared(
    project: ProjectFile, *, fetching: bool = False, missing: list[NotFetched] | None = None
) -> tuple[Shared, ...]:
    """Open a project's libraries: folders as they stand, all else as it is locked and kept.

    What is not kept is fetched only if ``fetching``, which also holds folders to the lock. Raises
    ``UsageError`` for what is not there, unless ``missing`` is there to take it, and as ``resolved``.
    """
    lock = read(project)
    found = []
    for name, source in project.libraries.items():
        try:
            found.append(_opened(project, name, source, lock, fetching=fetching))
        except NotFetched as error:
            if missing is None:
                raise
            missing.append(error)
    return tuple(found)


def _opened(
    project: ProjectFile,
    name: str,
    source: LibrarySource,
    lock: dict[str, LockedLibrary],
    *,
    fetching: bool,
) -> Shared:
    if source.kind == "path" and not fetching:
        folder = os.path.join(os.path.dirname(project.where), source.place)
        signers = _signers(project, source)
        return Shared(name, folder, checksums.sums(folder, (), signers) if signers else None)
    locked = entry(project, name, lock)
    if fetching and (source.kind == "path" or not kept.is_whole(locked.files)):
        resolved(project, name, source, locked)
    there = kept.opened(locked.files)
    if there is None:
        raise NotFetched(
            f"{name} ({source}) was not fetched on this machine yet",
            hint="vllm-mods sync --fetch  # has all libraries of the project as they are locked",
        )
    _signed(project, source, locked.files)
    return Shared(name, *there)


def _fetched(
    project: ProjectFile, source: LibrarySource, at: str | None
) -> tuple[str, dict[str, bytes]]:
    """Return what a library is resolved to, and its files; ``at`` is what it has to be resolved to."""
    beside = os.path.dirname(project.where)
    if source.kind == "git":
        from vllm_mods.sharing import repositories  # noqa: PLC0415  (GitPython: 100 ms)

        return repositories.fetch(source, beside, at)
    if source.kind == "oci":
        from vllm_mods.sharing import artifact  # noqa: PLC0415  (the registry's client)

        bare = source.place.partition("@")[0] if at else source.place
        pulled = artifact.pull(f"{bare}@{at}" if at else bare, signers=_signers(project, source))
        return pulled.digest, pulled.files
    if source.kind == "package":
        from vllm_mods.sharing import distributions  # noqa: PLC0415  (importlib.metadata)

        version, folder = distributions.installed(source.place)
    else:
        version, folder = "", os.path.join(beside, source.place)
    catalog.check_library(folder)
    return version, contents.files(folder)


def _signers(project: ProjectFile, source: LibrarySource) -> str | None:
    beside = os.path.dirname(project.where)
    return os.path.join(beside, source.allowed_signers) if source.allowed_signers else None


def _signed(project: ProjectFile, source: LibrarySource, digest: str) -> None:
    """Raise ``Refused`` for a library that is kept, and not signed by those who have to."""
    signers, there = _signers(project, source), kept.opened(digest)
    if signers is None or there is None or source.kind == "oci":  # whose artifact is signed itself
        return
    folder, listed = there
    signed = checksums.sums(folder, (), signers)
    for path in listed:
        if path not in {checksums.SUMS, f"{checksums.SUMS}.sig"}:
            data = reading.read(os.path.join(folder, path), folder)
            checksums.check(folder, os.path.join(folder, path), data, signed)
