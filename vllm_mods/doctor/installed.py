"""A tree in a folder, and what is around it: metadata, strange files, the disk. Reads only."""

from __future__ import annotations

import csv
import fcntl
import os
import re
import stat
import sys
from typing import NamedTuple

from vllm_mods import journal, receipt, record
from vllm_mods.doctor import processes, search
from vllm_mods.doctor.facts import Disk, Distribution, Folder, Recorded
from vllm_mods.trees import names

_PATCHED = (".orig", ".rej", ".bak", ".save", ".patch", "~")
"""Names that `patch`, editors and people leave beside what they changed."""
_HASHED = 8 << 20
"""Bytes up to which a file is hashed; of vLLM's larger ones, its extensions, the size is compared."""
_ENOUGH = 4 << 20
"""Bytes that an apply needs at most: the bundled mods, all of them, take less than 1 MB."""


def look(root: str, version: str | None) -> Folder:
    """Look at the tree in a site root, which says that it is of this version."""
    walk = _walk(root)
    dists, listing = _distributions(root)
    recorded, unread = None, set(walk.closed)
    if len(listing) == 1:
        recorded, more = _recorded(root, listing[0], walk.sources)
        unread.update(more)
    return Folder(
        root=root,
        distributions=dists,
        version_from=_version_from(root, version, dists),
        recorded=recorded,
        leftovers=tuple(walk.leftovers),
        links=tuple(walk.links),
        closed=tuple(sorted(unread)),
        unfinished=journal.find(root),
        disk=disk(root),
        processes=processes.running(root, _since(root)),
        others=search.others(root, os.environ, sys.path),
    )


def disk(folder: str) -> Disk:
    """Describe the file system of a folder."""
    info = os.statvfs(folder)
    free = info.f_bavail * info.f_frsize
    return Disk(
        kind=_kind(folder),
        read_only=bool(info.f_flag & os.ST_RDONLY),
        free=free,
        full=free < _ENOUGH or (info.f_files > 0 and info.f_favail == 0),
        lock_fault=_lock_fault(folder),
    )


class _Walk(NamedTuple):
    leftovers: list[str]
    links: list[str]
    closed: list[str]
    sources: list[str]


def _walk(root: str) -> _Walk:
    """Sort what lies below ``vllm/`` by what is strange about it; bytecode is left out."""
    found = _Walk([], [], [], [])
    pending = ["vllm"]
    while pending:
        folder = pending.pop()
        try:
            entries = list(os.scandir(f"{root}/{folder}"))
        except OSError:
            found.closed.append(folder)
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if entry.is_symlink():
                found.links.append(path)
            elif entry.is_dir(follow_symlinks=False):
                pending += [path] if entry.name != "__pycache__" else []
            elif path.endswith(".py"):
                found.sources.append(path)
            elif path.endswith(_PATCHED):
                found.leftovers.append(path)
    for some in found:
        some.sort()
    return found


def _distributions(root: str) -> tuple[tuple[Distribution, ...], list[str]]:
    """Return vLLM's distributions, and the folders of those whose RECORD lists ``vllm/``."""
    found, listing = [], []
    for folder in sorted(name for name in os.listdir(root) if name.endswith(".dist-info")):
        said = names.dist_info(folder)
        lists = record.lists(_bytes(f"{root}/{folder}/RECORD"), "vllm/__init__.py")
        if lists:
            listing.append(folder)
        if said is not None and (lists or said[0].lower() == "vllm"):
            found.append(Distribution(folder, *said))
    return tuple(found), listing


def _version_from(root: str, version: str | None, dists: tuple[Distribution, ...]) -> str:
    """Name what the tree's version is known from."""
    for one in dists:
        if one.version == version:
            return one.folder
    if version is None:
        return "nothing"
    module = names.module_version(_bytes(f"{root}/vllm/_version.py"))
    return "vllm/_version.py" if module == version else "PKG-INFO"


def _recorded(root: str, folder: str, sources: list[str]) -> tuple[Recorded, list[str]]:
    """Hold a RECORD against the files; return with it what could not be read."""
    rows = _rows(_bytes(f"{root}/{folder}/RECORD"))
    differs, gone, unread = [], [], []
    for path, (hashed, size) in rows.items():
        try:
            same = _agrees(f"{root}/{path}", hashed, size)
        except (FileNotFoundError, NotADirectoryError):
            gone.append(path)
        except OSError:
            unread.append(path)
        else:
            differs += [] if same else [path]
    extra = tuple(path for path in sources if path not in rows)
    return Recorded(folder, len(rows), tuple(differs), tuple(gone), extra), unread


def _agrees(path: str, hashed: str, size: str) -> bool:
    info = os.stat(path)
    if not hashed or not stat.S_ISREG(info.st_mode):
        return True
    if info.st_size > _HASHED:
        return size in {"", str(info.st_size)}
    with open(path, "rb") as file:
        return names.hash_agrees(hashed, file.read()) is not False


def _rows(data: bytes) -> dict[str, tuple[str, str]]:
    """Return hash and size of the files of ``vllm/``, bytecode left out: installers write that."""
    text = data.decode("utf-8", "surrogateescape").splitlines()
    try:
        rows = [row for row in csv.reader(text) if len(row) == 3]
    except csv.Error:  # not even that: no file is listed then
        rows = []
    return {
        path: (hashed, size)
        for path, hashed, size in rows
        if path.startswith("vllm/") and not path.endswith(".pyc") and ".." not in path
    }


def _since(root: str) -> float | None:
    """Return when the receipt came, None without one. Its mtime may be a stated one; this is not."""
    try:
        return os.stat(f"{root}/{receipt.RECEIPT}").st_ctime
    except OSError:
        return None


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
    text = _bytes("/proc/self/mountinfo").decode("utf-8", "surrogateescape")
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        fields, rest = head.split(), tail.split()
        if len(fields) < 5 or not rest:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, rest[0]
    return kind


def _bytes(path: str) -> bytes:
    """Return a file, nothing where it is not there or cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
