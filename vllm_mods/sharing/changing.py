"""What ``add``, ``update`` and ``remove`` do to a project: whole, or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.formats.project import LibrarySource, ProjectFile, source_of
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.formats.schema import BUNDLED, NAME, Table
from vllm_mods.library import project_file
from vllm_mods.library.catalog import Library, Shared
from vllm_mods.sharing import contents, editing, kept, locking

_GIT = re.compile(
    r"git\+(?P<place>(?:[a-z]+://[^/]*|[^/@]+@[^:/]+:)?[^@#]*)(?:@(?P<rev>[^#]*))?(?:#subdirectory=(?P<below>.*))?"
)


class LibraryAdded(NamedTuple):
    """A library that a project has now: its mods, and those of them that the default target names."""

    name: str
    locked: LockedLibrary
    mods: tuple[Mod, ...]
    named: tuple[str, ...]


class LibraryUpdate(NamedTuple):
    """A library as it was locked (None: it was not), and as it is; the mods of both, None for what is not kept."""

    name: str
    before: LockedLibrary | None
    now: LockedLibrary
    mods_before: tuple[Mod, ...] | None
    mods_now: tuple[Mod, ...]

    @property
    def changed(self) -> bool:
        """Whether it is another."""
        return self.before != self.now


def project_path() -> str:
    """Return the file of the project that holds here, or where it would be."""
    project = project_file.find()
    return os.path.abspath(project_file.NAME) if project is None else project.where


def read_project() -> ProjectFile:
    """Read the project that holds here. Raises ``UsageError`` where there is none."""
    project = project_file.find()
    if project is None:
        raise UsageError(
            f"there is no {project_file.NAME} here, nor above in this repository",
            hint="vllm-mods add SOURCE --mod MOD  # makes one",
        )
    return project


def parse_source(text: str, where: str, signers: str | None = None) -> tuple[LibrarySource, str]:
    """Read a source as it is typed, for the project's file ``where``; and the name that suggests itself.

    Raises ``UsageError``, which does not repeat what may be a secret.
    """
    kind, colon, rest = text.partition(":")
    if match := _GIT.fullmatch(text):
        keys = {"git": match["place"], "rev": match["rev"], "subdirectory": match["below"]}
        if keys["git"].startswith("."):
            keys["git"] = _beside(keys["git"], where)
        *above, last = [one for one in re.split("[/:]", match["place"]) if one.strip(".")] or [""]
        name = above[-1] if len(above) > 1 and "//" in match["place"] else last.removesuffix(".git")
    elif colon and kind == "package":
        keys, name = {kind: rest}, rest
    elif os.path.isdir(text):
        keys, name = {"path": _beside(text, where)}, os.path.basename(os.path.abspath(text))
    else:
        known = "git+URL[@REV][#subdirectory=DIR], package:NAME or a folder"
        is_url = re.search("[@?]|://", text)
        raise UsageError(
            f"a library's source is {known}; this is none of them"
            + ("" if is_url else f", and there is no folder {text}"),
            hint="vllm-mods add git+https://HOST/OWNER/REPOSITORY@TAG; vllm-mods apply MOD puts a mod in",
        )
    keys["allowed_signers"] = signers and _beside(signers, where)
    table = Table({key: value for key, value in keys.items() if value}, "", [])
    source = source_of(table)
    if table.problems:
        raise UsageError("; ".join(table.problems), hint="vllm-mods add --help")
    return source, re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")


def add(where: str, source: LibrarySource, name: str, mods: Sequence[str]) -> LibraryAdded:
    """Add a library to a project, and mods of it to what its default target holds.

    Raises ``UsageError`` for a name that is taken or a mod that it has not, and whatever fetching it and
    reading its mods does; nothing is written then.
    """
    with editing.locked_project(where) as project:
        _check_new(project, name)
    if not re.match(NAME, name) or name == BUNDLED:
        raise UsageError(f"{name!r} is no name of a library", hint="--name NAME")
    locked = locking.resolve(project, name, source)
    all_mods = _mods(name, locked) or ()
    for mod in mods:
        if mod not in {one.name for one in all_mods}:
            raise UsageError(
                f"{source} has no mod named `{mod}`",
                hint=f"it has {', '.join(one.name for one in all_mods) or 'none'}",
            )
    named = tuple(f"{name}/{mod}" for mod in mods)
    with editing.locked_project(where) as project:
        _check_new(project, name)
        editing.write(
            project, _lock(project) | {name: locked}, editing.edit_to_add(name, source, named)
        )
    return LibraryAdded(name, locked, all_mods, named)


def remove(where: str, name: str) -> tuple[str, ...]:
    """Take a library out of a project, and its mods out of what targets hold; return those, as they were named."""
    with editing.locked_project(where) as project:
        _check_there(project, name, "; vllm-mods revert MOD takes a mod out of a vLLM")
        lock = _lock(project)
        library = kept.open_kept(lock[name]) if name in lock else None
        own = contents.mods_in(library.listed) if library else ()
        gone = [
            mod
            for target in project.targets
            for mod in target.mods
            if mod.startswith(f"{name}/") or mod in own
        ]
        left = {one: was for one, was in lock.items() if one != name}
        editing.write(project, left, editing.edit_to_remove(name, gone), removes=True)
    return tuple(dict.fromkeys(gone))


def update(where: str, names: Sequence[str], *, dry: bool) -> tuple[LibraryUpdate, ...]:
    """Resolve libraries anew, all of them where none is named; lock what is found unless this is ``dry``."""
    with editing.locked_project(where) as project:
        lock = locking.read(project)
    for name in names:
        _check_there(project, name)
    updates = []
    for name in names or project.libraries:
        before = lock.get(name)
        now = locking.resolve(project, name, project.libraries[name])
        old = None if before is None else _mods(name, before)
        updates.append(LibraryUpdate(name, before, now, old, _mods(name, now) or ()))
    locked = {one.name: one.now for one in updates}
    if not dry and any(one.changed for one in updates):
        with editing.locked_project(where) as project:
            editing.write(project, _lock(project) | locked)
    return tuple(updates)


def _mods(name: str, locked: LockedLibrary) -> tuple[Mod, ...] | None:
    """Read the mods of a library that is kept."""
    library_files = kept.open_kept(locked)
    if library_files is None:
        return None
    library = Library(shared=[Shared(name, *library_files)])
    own = contents.mods_in(library_files.listed)
    return tuple(library.load(f"{name}/{mod}") for mod in own)


def _lock(project: ProjectFile) -> dict[str, LockedLibrary]:
    """Read what is locked of the libraries that a project names."""
    return {name: was for name, was in locking.read(project).items() if name in project.libraries}


def _check_new(project: ProjectFile, name: str) -> None:
    if name in project.libraries:
        raise UsageError(
            f"{project.where} has a library named `{name}` already: {project.libraries[name]}",
            hint=f"--name ANOTHER; or edit it there, and vllm-mods update {name}",
        )


def _check_there(project: ProjectFile, name: str, more: str = "") -> None:
    if name not in project.libraries:
        listed = ", ".join(project.libraries) or "none"
        raise UsageError(
            f"{project.where} has no library named `{name}`", hint=f"it has {listed}{more}"
        )


def _beside(path: str, where: str) -> str:
    """Return a path as the project's file has it."""
    relative = os.path.relpath(path, os.path.dirname(where))
    return relative if relative.startswith("..") else os.path.join(".", relative)
