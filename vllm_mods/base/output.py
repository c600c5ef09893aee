"""A file that somebody asked for by name."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat


def write_whole(path: str, data: bytes) -> None:
    """Put ``data`` under a name, where it appears in one step.

    A link stays a link. What is no regular file, as /dev/null or a pipe, is written to: to replace it
    would take it from everybody. Raises ``OSError``.
    """
    path = os.path.realpath(path)
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        is_file = True
    if not is_file:
        with open(path, "wb") as file:
            file.write(data)
        return
    folder, name = os.path.split(path)
    staged = os.path.join(folder, f".{name}.new")
    descriptor = _opened(staged)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.replace(staged, path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        raise


def _opened(staged: str) -> int:
    """Open a file for this run alone, anew or as a killed run has left it."""
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        _lock(descriptor)
        info = os.fstat(descriptor)
        is_own = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and info.st_nlink == 1
        if not is_own or not os.path.samestat(info, os.lstat(staged)):
            raise FileExistsError(errno.EEXIST, f"{staged} is somebody else's")  # noqa: TRY301
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(errno.EBUSY, "another process writes it") from error
    except OSError as error:
        if error.errno not in {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}:
            raise
