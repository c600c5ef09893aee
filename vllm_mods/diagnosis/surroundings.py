"""What lies around a tree in a folder: strange files, the disk, processes, other trees. Reads only."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from typing import Any, NamedTuple

from vllm_mods.base.tree import Tree
from vllm_mods.diagnosis import search
from vllm_mods.diagnosis.listing import Compared, Listed
from vllm_mods.diagnosis.search import OtherVllm, Process
from vllm_mods.formats import tree_names
from vllm_mods.site import journal
from vllm_mods.trees.distributions import dist_infos

_PATCHED = (".orig", ".rej", ".bak", ".save", ".patch", "~")
"""Names that `patch`, editors and people leave beside what they changed."""
ENOUGH = 4 << 20
"""Bytes that an apply needs at most: the bundled mods, all of them, take less than 1 MB."""


class Disk(NamedTuple):
    """The file system of a folder. ``lock_fault`` is why folders cannot be locked there."""

    kind: str
    read_only: bool
    free: int
    full: bool
    lock_fault: str | None


class Surroundings(NamedTuple):
    """A folder with a tree. ``recorded`` is what RECORD lists, and where it disagrees; ``closed`` cannot be read."""

    root: str
    distributions: list[dict[str, str]]
    version_from: str
    recorded: dict[str, Any] | None
    leftovers: list[str]
    links: list[str]
    closed: list[str]
    unfinished: str | None
    disk: Disk
    processes: tuple[Process, ...]
    others: tuple[OtherVllm, ...]


def look(
    tree: Tree, root: str, version: str | None, listed: Listed | None, held: Compared | None
) -> Surroundings:
    """Look at the folder of a tree that says it is of this version; ``held`` is its list against its files."""
    dists = dist_infos(tree)
    leftovers, links, closed = _walk(root)
    recorded = None
    if listed is not None and held is not None and listed.name in dists:
        extra = [path for path in held.extra if path.endswith(".py")]
        told = {"differs": held.differs, "gone": held.gone, "extra": extra}
        recorded = {"folder": listed.name, "checked": len(listed.rows), **told}
    return Surroundings(
        root=root,
        distributions=[
            {"folder": folder, "name": name, "version": stated}
            for folder, (name, stated) in dists.items()
        ],
        version_from=_version_from(root, version, dists),
        recorded=recorded,
        leftovers=leftovers,
        links=links,
        closed=closed,
        unfinished=journal.find(root),
        disk=_disk(root),
        processes=tuple(search.processes(root)),
        others=tuple(search.others(root, os.environ, sys.path)),
    )


def _walk(root: str) -> tuple[list[str], list[str], list[str]]:
    """Return what `patch` left below ``vllm/``, the symbolic links, and the folders that cannot be read."""
    leftovers, links, closed = [], [], []

    def unread(error: OSError) -> None:
        closed.append(os.path.relpath(error.filename, root))

    for folder, folders, files in os.walk(f"{root}/vllm", onerror=unread):
        there = os.path.relpath(folder, root)
        for name in (*folders, *files):
            if os.path.islink(f"{folder}/{name}"):
                links.append(f"{there}/{name}")
            elif name in files and name.endswith(_PATCHED):
                leftovers.append(f"{there}/{name}")
        folders[:] = [one for one in folders if one != "__pycache__"]
    return sorted(leftovers), sorted(links), sorted(closed)


def _version_from(root: str, version: str | None, dists: dict[str, tuple[str, str]]) -> str:
    """Name what the tree's version is known from."""
    for folder, (_name, stated) in dists.items():
        if stated == version:
            return folder
    if version is None:
        return "nothing"
    module = search.text(f"{root}/vllm/_version.py").encode("utf-8", "surrogateescape")
    return "vllm/_version.py" if tree_names.module_version(module) == version else "PKG-INFO"


def _disk(folder: str) -> Disk:
    info = os.statvfs(folder)
    free = info.f_bavail * info.f_frsize
    return Disk(
        kind=_kind(folder),
        read_only=bool(info.f_flag & os.ST_RDONLY),
        free=free,
        full=free < ENOUGH or (info.f_files > 0 and info.f_favail == 0),
        lock_fault=_lock_fault(folder),
    )


def _lock_fault(folder: str) -> str | None:
    """Try a lock on ``vllm/``: on the folder itself it would be in the way of an ``apply``."""
    try:
        descriptor = os.open(f"{folder}/vllm", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return None  # somebody has it, so it works
    except OSError as error:
        return error.strerror
    finally:
        os.close(descriptor)
    return None


def _kind(folder: str) -> str:
    """Return the type of a folder's file system, by the longest mount point above (proc(5))."""
    best, kind = "", "unknown"
    for line in search.text("/proc/self/mountinfo").splitlines():
        head, _, tail = line.partition(" - ")
        fields, rest = head.split(), tail.split()
        if len(fields) < 5 or not rest:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if f"{folder}/".startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, rest[0]
    return kind
