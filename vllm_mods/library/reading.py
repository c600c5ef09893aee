"""The one way in which a file of a library is read: a regular file, of a stated size, through no link."""

import os
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

from vllm_mods.base import limits
from vllm_mods.base.errors import ManifestError

_LARGEST = {
    ".toml": "MANIFEST",
    ".lock": "RECEIPT",
    ".jinja": "LIBRARY_TEXT",
    ".json": "LIBRARY_TEXT",
    ".patch": "PATCH",
    ".sig": "SIGNATURE",
    "SHA256SUMS": "RECEIPT",
}
"""The limits of files by how their names end; any other has ``MOD_BYTES``."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def reader(*roots: str, linked: str | None = None) -> Callable[..., bytes | None]:
    """Return a ``read`` that knows which of ``roots`` a file lies in; links are followed in ``linked`` alone.

    What lies in none of them is read in the folder that is given with it, or as it is named.
    """

    def read_in(path: str, folder: str | None = None) -> bytes | None:
        for root in roots:
            if path.startswith(f"{root.rstrip('/')}/"):
                return read(path, None if root == linked else root)
        return read(path, folder)

    return read_in


def read(path: str, inside: str | None) -> bytes | None:
    """Read a file below the folder ``inside``, None if there is none there.

    The folder may be named by a link; below it none is followed. With None it is a file that the
    caller was told to read, link or pipe. Raises ``ManifestError`` for what may not or cannot be read.
    """
    try:
        with open(path if inside is None else _opened(path, inside), "rb") as file:
            return _content(path, file, any_kind=inside is None)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error


def paths_below(top: str, is_left_out: Callable[[str], bool] = lambda _: False) -> Iterator[str]:
    """Yield all below a folder but folders, by the path from there; no link is followed.

    Raises ``ManifestError`` for a folder that cannot be read.
    """
    pending = [top]
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda one: one.name)
        except OSError as error:
            raise _unreadable(folder, error) from error
        for entry in listed:
            if is_left_out(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                yield os.path.relpath(entry.path, top)


def _unreadable(path: str, error: OSError) -> ManifestError:
    return ManifestError(path, (f"cannot be read: {error.strerror}",), hint=f"ls -ld {path}")


def _opened(path: str, inside: str) -> int:
    """Open a file, each folder in the one above it."""
    parts = [part for part in path[len(inside) :].split("/") if part not in {"", "."}]
    if ".." in parts or not parts:
        raise ManifestError(path, (f"points outside {inside}",))
    at = os.open(inside, _FOLDER)
    for n, part in enumerate(parts, 1):
        try:
            kind = stat.S_IFMT(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode)
            is_last = n == len(parts)
            if kind not in {stat.S_IFREG, stat.S_IFDIR}:
                raise _refusal("/".join([inside.rstrip("/"), *parts[:n]]), kind)
            if is_last and kind == stat.S_IFDIR:
                raise IsADirectoryError(path)
            # what it was a moment ago it need not be any more
            below = os.open(part, (_FILE if is_last else _FOLDER) | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def _content(path: str, file: BinaryIO, *, any_kind: bool) -> bytes:
    """Read an open file to its end. Raises ``ManifestError`` if it is none, or has too much."""
    kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if kind != stat.S_IFREG and not any_kind:
        raise _refusal(path, kind)
    name = next((limit for end, limit in _LARGEST.items() if path.endswith(end)), "MOD_BYTES")
    most: limits.Limit = getattr(limits, name)
    data = file.read(most + 1)
    if len(data) > most:
        raise ManifestError(
            path, (f"has more than {most}, the limit for {most.what}",), hint=f"ls -l {path}"
        )
    return data


def _refusal(path: str, kind: int) -> ManifestError:
    what = "a symbolic link" if kind == stat.S_IFLNK else "not a regular file"
    why = f"is {what}: vllm-mods reads only regular files of a library and follows no links"
    return ManifestError(path, (why,), hint=f"ls -l {path}  # replace it by the file itself")
