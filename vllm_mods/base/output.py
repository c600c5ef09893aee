"""A file that somebody asked for by name."""

from __future__ import annotations

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
    staged = f"{path}.{os.getpid()}"
    try:
        with open(staged, "xb") as file:
            file.write(data)
        os.replace(staged, path)
    except OSError as error:
        if not isinstance(error, FileExistsError) and os.path.lexists(staged):
            os.unlink(staged)
        raise
