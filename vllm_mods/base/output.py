"""A file or a folder that somebody asked for by name."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping


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
    staged = f"{path}.{os.getpid()}"
    try:
        with open(staged, "xb") as file:
            file.write(data)
        os.replace(staged, path)
    except OSError as error:
        if not isinstance(error, FileExistsError) and os.path.lexists(staged):
            os.unlink(staged)
        raise


def write_folder(place: str, files: Mapping[str, bytes]) -> None:
    """Make a folder of files, by their paths in it, which appears in one step. Raises ``OSError``.

    One that is there already is replaced only if it is empty.
    """
    parent, name = os.path.split(os.path.abspath(place))
    staged = tempfile.mkdtemp(dir=parent, prefix=f".{name}-")
    try:
        for path, data in files.items():
            os.makedirs(os.path.dirname(os.path.join(staged, path)), exist_ok=True)
            with open(os.path.join(staged, path), "wb") as file:
                file.write(data)
        os.chmod(staged, 0o755)  # noqa: S103  (any other folder has it too)
        os.rename(staged, place)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
