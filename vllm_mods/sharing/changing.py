"""What ``add``, ``update`` and ``remove`` do to a project: whole, or not at all; the user's comments and order stay.

Its file and its lock are two and there is no one step for both, so the lock has at any moment all that the file
names: what is added goes into the lock first, what is removed leaves it last. An entry too many means nothing.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.base.errors import UsageError, refusing_to_write
from vllm_mods.base.model import Mod
from vllm_mods.base.output import staged
from vllm_mods.formats import manifest_editor, project_lock
from vllm_mods.formats.manifest_editor import Edit, subtable
from vllm_mods.formats.project import LibrarySource, ProjectFile, source_of
from vllm_mods.formats.schema import BUNDLED, NAME, Table
from vllm_mods.library import project_file, reading, writing
from vllm_mods.library.catalog import Library, Shared
from vllm_mods.sharing import contents, kept, locking

DEFAULT = "default"
"""The target whose mods ``add`` and ``remove`` change, and that is meant where none is named."""
_GIT = re.compile(
    r"git\+(?P<place>(?:[a-z]+://[^/]*|[^/@]+@[^:/]+:)?[^@#]*)(?:@(?P<rev>[^#]*))?(?:#subdirectory=(?P<below>.*))?"
)


class LibraryAdded(NamedTuple):
    """A library that a project has now: its mods, and those of them that the default target names."""

    name: str
    locked: project_lock.LockedLibrary
    mods: tuple[Mod, ...]
    named: tuple[str, ...]


class LibraryUpdate(NamedTuple):
    """A library as it was locked (None: it was not), and as it is; the mods of both, None for what is not kept."""

    name: str
    before: project_lock.LockedLibrary | None
    now: project_lock.LockedLibrary
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
        why = f"there is no project here: {project_file.NAME} is neither in this folder nor in a parent folder of this repository"
        raise UsageError(why, hint="vllm-mods add SOURCE --mod MOD  # begins a project")
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
        why = "SOURCE is neither a folder, nor git+URL[@REV][#subdirectory=DIR], nor package:NAME"
        hint = "vllm-mods add git+https://HOST/OWNER/REPOSITORY@TAG; to apply a mod: vllm-mods apply MOD"
        raise UsageError(why, hint=hint)
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
    with _locked_project(where) as project:
        _check_new(project, name)
    if not re.match(NAME, name) or name == BUNDLED:
        raise UsageError(f"{name!r} is not a valid name for a library", hint="--name NAME")
    locked = locking.resolve(project, name, source)
    all_mods = _mods(name, locked) or ()
    for mod in mods:
        if mod not in {one.name for one in all_mods}:
            why = f"{source} has no mod named `{mod}`"
            hint = f"known: {', '.join(one.name for one in all_mods) or 'none'}"
            raise UsageError(why, hint=hint)
    named = tuple(f"{name}/{mod}" for mod in mods)
    with _locked_project(where) as project:
        _check_new(project, name)
        lock = _lock(project) | {name: locked}
        _write(project, lock, lambda root: _put_in(root, name, source, named))
    return LibraryAdded(name, locked, all_mods, named)


def remove(where: str, name: str) -> tuple[str, ...]:
    """Take a library out of a project, and its mods out of what targets hold; return those, as they were named."""
    with _locked_project(where) as project:
        _check_there(project, name, "; to remove a mod from a vLLM: vllm-mods revert MOD")
        lock = _lock(project)
        library = kept.open_kept(lock[name]) if name in lock else None
        own = contents.mods_in(library.listed) if library else ()
        named = [mod for target in project.targets for mod in target.mods]
        gone = [mod for mod in named if mod.startswith(f"{name}/") or mod in own]
        left = {one: was for one, was in lock.items() if one != name}
        _write(project, left, lambda root: _take_out(root, name, gone), removes=True)
    return tuple(dict.fromkeys(gone))


def update(where: str, names: Sequence[str], *, dry: bool) -> tuple[LibraryUpdate, ...]:
    """Resolve libraries anew, all of them where none is named; lock what is found unless this is ``dry``."""
    with _locked_project(where) as project:
        lock = locking.read(project)
    for name in names:
        _check_there(project, name)
    updates = []
    for name in names or project.libraries:
        before = lock.get(name)
        now = locking.resolve(project, name, project.libraries[name])
        old = () if before is None else _mods(name, before)
        updates.append(LibraryUpdate(name, before, now, old, _mods(name, now) or ()))
    locked = {one.name: one.now for one in updates}
    if not dry and any(one.changed for one in updates):
        with _locked_project(where) as project:
            _write(project, _lock(project) | locked)
    return tuple(updates)


def _mods(name: str, locked: project_lock.LockedLibrary) -> tuple[Mod, ...] | None:
    library_files = kept.open_kept(locked)
    if library_files is None:
        return None
    library = Library(shared=[Shared(name, *library_files)])
    return tuple(library.load(f"{name}/{mod}") for mod in contents.mods_in(library_files.listed))


def _lock(project: ProjectFile) -> dict[str, project_lock.LockedLibrary]:
    return {name: was for name, was in locking.read(project).items() if name in project.libraries}


def _check_new(project: ProjectFile, name: str) -> None:
    if name in project.libraries:
        why = f"{project.where} has a library named `{name}` already: {project.libraries[name]}"
        raise UsageError(why, hint=f"--name ANOTHER; or edit it, then vllm-mods update {name}")


def _check_there(project: ProjectFile, name: str, more: str = "") -> None:
    if name not in project.libraries:
        why = f"{project.where} has no library named `{name}`"
        raise UsageError(why, hint=f"known: {', '.join(project.libraries) or 'none'}{more}")


def _beside(path: str, where: str) -> str:
    """Return a path as the project's file has it."""
    relative = os.path.relpath(path, os.path.dirname(where))
    return relative if relative.startswith("..") else os.path.join(".", relative)


def _put_in(root: Any, name: str, source: LibrarySource, mods: Sequence[str]) -> None:  # noqa: ANN401  (a dict, or what tomlkit has for one)
    subtable(root, "libraries")[name] = source.keys
    if mods:
        target = subtable(subtable(root, "targets"), DEFAULT, header=True)
        listed = target.setdefault("mods", [])
        for mod in mods:
            if mod not in listed:
                listed.append(mod)


def _take_out(root: Any, name: str, mods: Sequence[str]) -> None:  # noqa: ANN401
    del root["libraries"][name]
    if not root["libraries"]:
        del root["libraries"]
    for target in root.get("targets", {}).values():
        for mod in (one for one in mods if one in target.get("mods", ())):
            target["mods"].remove(mod)


def _write(
    project: ProjectFile,
    lock: Mapping[str, project_lock.LockedLibrary],
    change: Edit | None = None,
    *,
    removes: bool = False,
) -> None:
    """Write a lock, and the project's file with a change, or neither. Raises ``Refused`` where that cannot be.

    The caller holds ``_locked_project``, and has read both files since.
    """
    files = {locking.lock_path(project): project_lock.dump(lock.items())}
    if change is not None:
        is_own = not project.where.endswith(project_file.PYPROJECT)
        edited = manifest_editor.edit(
            reading.read(project.where, None) or b"schema = 1\n",
            project.where,
            lambda root: change(root if is_own else root["tool"]["vllm-mods"]),
            hint="write [libraries.NAME] and [targets.NAME] as tables of their own",
        )
        after = {project.where: edited}
        files = files | after if removes else after | files
    with refusing_to_write(project.where), contextlib.ExitStack() as stack:
        for path, data in files.items():  # the last one gets its name first
            stack.enter_context(staged(path, data))


@contextlib.contextmanager
def _locked_project(where: str) -> Iterator[ProjectFile]:
    """Read a project, and let nobody else change it meanwhile; one that there is not yet is empty."""
    with writing.alone(os.path.dirname(where), waits=True):  # it is held for milliseconds
        yield project_file.read(where) or ProjectFile(where, {})
