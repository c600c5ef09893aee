"""Repositories made in one go: tens of commits would take seconds one by one."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

START = 1_700_000_000


def git(folder: Path, *args: str) -> str:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_COMMITTER_NAME": "a"}
    mails = {"GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_EMAIL": "a@b"}
    run = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *args],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **names, **mails, "GIT_CONFIG_GLOBAL": os.devnull},
    )
    return run.stdout.strip()


def grow(folder: Path, *steps: tuple[str, Mapping[str, str | None]]) -> list[str]:
    """Make a repository with a commit per step, a minute apart; return their ids.

    A step is a message and the files that it writes, ``None`` for one that it deletes.
    """
    git(folder, "init", "-q", "-b", "main")
    parts: list[bytes] = []
    for number, (message, files) in enumerate(steps):
        parts.append(
            b"commit refs/heads/main\ncommitter a <a@b> %d +0000\n" % (START + 60 * number)
        )
        parts.append(_data(message))
        for path, text in files.items():
            name = path.encode()
            if text is None:
                parts.append(b"D %s\n" % name)
            else:
                parts += [b"M 100644 inline %s\n" % name, _data(text)]
    subprocess.run(
        ["git", "-C", str(folder), "fast-import", "--quiet"], input=b"".join(parts), check=True
    )
    git(folder, "reset", "-q", "--hard")
    return git(folder, "rev-list", "--reverse", "main").split()


def _data(text: str) -> bytes:
    return b"data %d\n%s\n" % (len(text.encode()), text.encode())
