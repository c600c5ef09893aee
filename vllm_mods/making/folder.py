"""A mod as launchers take it: a folder with a ``run.sh``, or a zip with one at its root."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.formats import zips
from vllm_mods.library import reading
from vllm_mods.scripts import dockerfile

SCRIPT = "run.sh"
DOCKERFILE = "Dockerfile"
_SKIPPED = {".git", "__pycache__"}


class LauncherFolder(NamedTuple):
    """A mod's name and its files by path, ``script`` among them: a ``run.sh``, or a Dockerfile."""

    name: str
    path: str
    files: dict[str, bytes]
    script: str = SCRIPT


def is_dockerfile(path: str) -> bool:
    """Tell whether a path is a Dockerfile, or a folder with one and no ``run.sh``."""
    if os.path.isdir(path):
        there = os.path.isfile(os.path.join(path, DOCKERFILE))
        return there and not os.path.lexists(os.path.join(path, SCRIPT))
    try:
        with open(path, "rb") as file:
            return dockerfile.is_one(file.read(limits.RECIPE).decode("utf-8", "replace"))
    except OSError:
        return False


def build(path: str) -> LauncherFolder:
    """Read a Dockerfile and what it copies out of its folder.

    Raises ``UsageError`` as ``read`` does, and for a path that leads out of the folder; ``BashError``
    for what is no Dockerfile.
    """
    folder, script = (path, DOCKERFILE) if os.path.isdir(path) else os.path.split(path)
    folder = folder or "."
    found = {script: reading.read(os.path.join(folder, script), None) or b""}
    text = found[script].decode("utf-8", "surrogateescape")
    for source in dockerfile.sources(dockerfile.read(text)):
        inner = os.path.normpath(source.lstrip("/"))
        if inner.split("/")[0] == "..":
            raise UsageError(f"{path}: {source} leads out of {folder}", hint="docker build")
        place = os.path.join(folder, inner)
        if os.path.isdir(place):
            for name, data in _unpacked(place).items():
                found[os.path.normpath(os.path.join(inner, name))] = data
        elif os.path.isfile(place):
            found[inner] = reading.read(place, folder) or b""
        _check_size(path, len(found), sum(map(len, found.values())))
    name = os.path.basename(os.path.abspath(folder))
    return LauncherFolder(name, path, found, script)


def read(path: str) -> LauncherFolder:
    """Read a mod folder or zip whole.

    Raises ``UsageError`` for what cannot be read, has no ``run.sh``, holds links or too much, or
    would be unpacked outside of its folder.
    """
    is_folder = os.path.isdir(path)
    if not is_folder and os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"{path} is neither a folder nor a zip", hint=f"ls -l {path}")
    name = os.path.basename(os.path.abspath(path))
    found = _unpacked(path) if is_folder else _zipped(path)
    if SCRIPT not in found:
        below = sorted(one for one in found if one.endswith(f"/{SCRIPT}"))
        hint = f"{path} holds {below[0]}: " if below else ""
        hint += "pack the mod's files, and not the folder around them" if below else "ls"
        raise UsageError(f"{path} has no {SCRIPT} at its root", hint=hint)
    return LauncherFolder(name if is_folder else name.removesuffix(".zip"), path, found)


def _unpacked(path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    size = 0
    try:
        for place in _walk(path):
            info = os.lstat(place)
            inner = os.path.relpath(place, path)
            if not stat.S_ISREG(info.st_mode):
                what = "a symbolic link" if stat.S_ISLNK(info.st_mode) else "no regular file"
                raise UsageError(
                    f"{place} is {what}, which does not travel with a mod",
                    hint=f"put the file itself there: cp --remove-destination $(readlink -f {place}) {place}",
                )
            size += info.st_size
            _check_size(path, len(found) + 1, size)
            found[inner] = reading.read(place, path) or b""
    except OSError as error:
        raise UsageError(
            f"{error.filename or path} cannot be read: {error.strerror}", hint=f"ls -lR {path}"
        ) from error
    return found


def _walk(path: str) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(path, onerror=fail):
        folders[:] = sorted(set(folders) - _SKIPPED)
        yield from (os.path.join(folder, name) for name in sorted(names))
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        yield from (os.path.join(folder, name) for name in links)


def _zipped(path: str) -> dict[str, bytes]:
    try:
        with zips.opened(path) as archive:
            infos = zips.files(archive)
            _check_size(path, len(infos), sum(info.file_size for info in infos))
            found: dict[str, bytes] = {}
            for info in infos:
                _check_entry(path, info)
                if info.filename in found:
                    raise UsageError(
                        f"{path}: two entries are called {info.filename}", hint=f"unzip -l {path}"
                    )
                found[info.filename] = zips.content(archive, info)
            return found
    except zips.BROKEN as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=f"unzip -t {path}") from error


def _check_entry(path: str, info: zipfile.ZipInfo) -> None:
    name = info.filename
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in parts[0]:
        raise UsageError(
            f"{path}: the entry {name!r} would be unpacked outside of the mod's folder",
            hint="ask whoever made the zip; nothing of it was written",
        )
    if stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG}:
        raise UsageError(
            f"{path}: the entry {name!r} is a link or a device, which does not travel with a mod",
            hint="pack the file itself: zip without -y",
        )


def _check_size(path: str, files: int, size: int) -> None:
    if files > limits.MOD_FILES or size > limits.MOD_BYTES:
        raise UsageError(
            f"{path} holds {files:,} files or more, {size >> 20} MiB unpacked: a mod has at most "
            f"{limits.MOD_FILES} and {limits.MOD_BYTES}",
            hint=f"is {path} the mod's own folder?",
        )
