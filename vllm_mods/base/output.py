"""A file or a folder that somebody asked for by name."""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping


def write_whole(path: str, data: bytes) -> None:
    """Put ``data`` under a name, where it appears in one step; see ``staged``. Raises ``OSError``."""
    with staged(path, data):
        pass


@contextlib.contextmanager
def staged(path: str, data: bytes) -> Iterator[None]:
    """Write a file that gets its name, in one step, when the block is done, and is gone if that fails.

    A link stays a link. What is not a regular file, as /dev/null or a pipe, is written to: to replace it
    would take it from everybody. Raises ``OSError``, before the block for what can be known by then.
    """
    path = os.path.realpath(path)
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        is_file = True
    if not is_file:
        with open(path, "wb") as file:
            yield
            file.write(data)
        return
    folder, name = os.path.split(path)
    place = os.path.join(folder, f".{name}.new")
    descriptor = _opened(place)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield
            os.replace(place, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        raise


def _opened(staged: str) -> int:
    """Open a file for this run alone, anew or as a killed run has left it."""
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        _lock(descriptor)
        info = os.fstat(descriptor)
        is_own = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and info.st_nlink == 1
        if not is_own or not os.path.samestat(info, os.lstat(staged)):
            raise FileExistsError(errno.EEXIST, f"{staged} belongs to another user")  # noqa: TRY301
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(errno.EBUSY, "another process is writing it") from error
    except OSError as error:
        if error.errno not in {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}:
            raise


def fill_folder(staged: str, files: Mapping[str, bytes], place: str) -> None:
    """Write files into a ``staged`` folder, then rename it to ``place``; remove it if that fails. Raises ``OSError``.

    What is at ``place`` already is replaced only if it is an empty folder.
    """
    try:
        for name, data in files.items():
            write_below(staged, name, data)
        os.rename(staged, place)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def write_below(folder: str, name: str, data: bytes) -> None:
    """Write a new file below a folder, and the folders on the way to it. Raises ``OSError``."""
    place = os.path.join(folder, name)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "xb") as file:  # never through a link that somebody put there
        file.write(data)
