"""A file or a folder that somebody asked for by name."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping


def write_whole(path: str, data: bytes) -> None:
    """Put ``data`` under a name, where it appears in one step; see ``staged``. Raises ``OSError``."""
    with staged(path, data):
        pass


@contextlib.contextmanager
def staged(path: str, data: bytes) -> Iterator[None]:
    """Write a file that gets its name, in one step, when the block is done, and is gone if that fails.

    A link stays a link. What is no regular file, as /dev/null or a pipe, is written to: to replace it
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
    place = os.path.join(folder, f".{name}.{os.getpid()}")  # of this run alone
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)  # a run of this number was killed
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
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


def write_folder(place: str, files: Mapping[str, bytes]) -> None:
    """Make a folder of files, by their paths in it, which appears in one step. Raises ``OSError``.

    One that is there already is replaced only if it is empty.
    """
    parent, name = os.path.split(os.path.abspath(place))
    staged = tempfile.mkdtemp(dir=parent, prefix=f".{name}-")
    os.chmod(staged, 0o755)  # noqa: S103  (any other folder has it too)
    fill_folder(staged, files, place)


def fill_folder(staged: str, files: Mapping[str, bytes], place: str) -> None:
    """Lay files out in a folder, and give it its name when it is whole; it is removed if that fails. Raises ``OSError``."""
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
