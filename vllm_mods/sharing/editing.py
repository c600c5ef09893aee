"""A project's file and its lock, changed together: the user's comments and order stay.

They are two files and there is no one step for both, so the lock has at any moment all that the file names:
what is added goes into the lock first, what is removed leaves it last. An entry too many means nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vllm_mods.base.errors import UsageError
from vllm_mods.base.output import staged
from vllm_mods.formats import manifest_editor, project_lock
from vllm_mods.formats.manifest_editor import Edit, subtable
from vllm_mods.formats.project import LibrarySource, ProjectFile
from vllm_mods.formats.project_lock import LockedLibrary
from vllm_mods.library import project_file, reading
from vllm_mods.sharing import locking

DEFAULT = "default"
"""The target whose mods ``add`` and ``remove`` change, and that is meant where none is named."""


def edit_to_add(name: str, source: LibrarySource, mods: Sequence[str]) -> Edit:
    """Return what puts a library into a project's table, and mods into what its target holds."""

    def change(root: Any) -> None:  # noqa: ANN401  (a dict, or what tomlkit has for one)
        subtable(root, "libraries")[name] = source.keys
        if mods:
            target = subtable(subtable(root, "targets"), DEFAULT, header=True)
            listed = target.setdefault("mods", [])
            for mod in mods:
                if mod not in listed:
                    listed.append(mod)

    return change


def edit_to_remove(name: str, mods: Sequence[str]) -> Edit:
    """Return what takes a library out of a project's table, and mods out of what its targets hold."""

    def change(root: Any) -> None:  # noqa: ANN401
        del root["libraries"][name]
        if not root["libraries"]:
            del root["libraries"]
        for target in root.get("targets", {}).values():
            for mod in (one for one in mods if one in target.get("mods", ())):
                target["mods"].remove(mod)

    return change


def write(
    project: ProjectFile,
    lock: Mapping[str, LockedLibrary],
    change: Edit | None = None,
    *,
    removes: bool = False,
) -> None:
    """Write a lock, and the project's file with a change, or neither. Raises ``UsageError`` where that cannot be.

    The caller holds ``locked_project``, and has read both files since.
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
    try:
        with contextlib.ExitStack() as stack:
            for path, data in files.items():  # the last one gets its name first
                stack.enter_context(staged(path, data))
    except OSError as error:
        place = os.path.dirname(project.where)
        names = " and ".join(map(os.path.basename, files))
        raise UsageError(
            f"{place}: {names} cannot be written: {error.strerror}", hint=f"ls -ld {place}"
        ) from error


@contextlib.contextmanager
def locked_project(where: str) -> Iterator[ProjectFile]:
    """Read a project, and let nobody else change it meanwhile; one that there is not yet is empty."""
    folder = os.path.dirname(where)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # it is held for milliseconds
        yield project_file.read(where) or ProjectFile(where, {})
    finally:
        os.close(descriptor)
