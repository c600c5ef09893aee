"""The journal of a transaction as text: what has to be put back, and under which names it lies. Pure.

One that lies in a tree may have come with it from a stranger: nothing in it leads out of the tree.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.errors import NotRestored
from vllm_mods.untrusted import json_of

if TYPE_CHECKING:
    from typing import Any

    from vllm_mods.site import Site

_SCHEMA = 1
_MOST_ID, _MOST_NS = 2**32 - 2, 2**63 - 1


class Step(NamedTuple):
    """One file of the tree, by sha256 before and after; None stands for "no such file".

    ``backup`` is its name in the work folder, ``temp`` the absolute path that the new form
    is staged at.
    """

    path: str
    before: str | None
    after: str | None
    backup: str | None
    temp: str


class Folder(NamedTuple):
    """A folder of the tree as it was."""

    path: str
    mode: int
    uid: int
    gid: int
    mtime_ns: int


class Journal(NamedTuple):
    """``kept`` folders get their mtime back, ``made`` ones are removed, ``gone`` ones made again.

    ``made`` and ``gone`` have outer folders before inner ones.
    """

    steps: tuple[Step, ...]
    kept: tuple[Folder, ...]
    made: tuple[str, ...]
    gone: tuple[Folder, ...]


def dump(journal: Journal, inode: int) -> bytes:
    """Write a journal; ``inode`` is that of the folder that it is going to lie in."""
    raw = {
        "schema": _SCHEMA,
        "folder": inode,
        "steps": [[one.path, one.before, one.after, one.backup, one.temp] for one in journal.steps],
        "kept": [_folder_row(one) for one in journal.kept],
        "made": list(journal.made),
        "gone": [_folder_row(one) for one in journal.gone],
    }
    return json.dumps(raw).encode()


def parse(data: bytes, work: str, name: str, where: Site, inode: int) -> Journal:
    """Read a journal, which may have come with a tree from a stranger.

    It names nothing but files of the tree. Outside of it, in a workspace, it is believed only if it
    was written in this very folder: nobody can pack the ``inode`` that a folder is going to get.
    """
    try:
        raw = json_of(data)
        if raw["schema"] != _SCHEMA:
            raise ValueError(f"schema {raw['schema']!r}")  # noqa: TRY301
        read = Journal(
            steps=tuple(_step_of(row, where) for row in raw["steps"]),
            kept=tuple(_folder_of(row) for row in raw["kept"]),
            made=tuple(raw["made"]),
            gone=tuple(_folder_of(row) for row in raw["gone"]),
        )
        if {type(path) for path in read.made} - {str}:
            raise TypeError("a folder's path is no string")  # noqa: TRY301
        for path in (
            *(one.path for part in (read.steps, read.kept, read.gone) for one in part),
            *read.made,
        ):
            _check_path(path, own=raw.get("folder") == inode)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotRestored(
            f"{work}/{name}: the journal of an interrupted transaction cannot be read "
            f"({error}); the files as they were before lie beside it",
            hint=f"ls -la {work}  # put them back by hand, or restore vLLM; then rm -r {work}",
        ) from error

    return read


def _step_of(row: list[Any], where: Site) -> Step:
    path, before, after, backup, temp = row
    if {type(one) for one in row} - {str, type(None)} or (
        backup is not None and not (backup.isascii() and backup.isdigit())
    ):
        raise ValueError(f"the step of {path!r} is none")
    # Always beside the file: of what is written, the name counts.
    folder, name = os.path.dirname(where.absolute(path)), os.path.basename(temp)
    if not name.startswith(".") or ".vllm-mods" not in name:
        raise ValueError(f"{temp} is no name of a staged file")
    return Step(path=path, before=before, after=after, backup=backup, temp=f"{folder}/{name}")


def _check_path(path: str, *, own: bool) -> None:
    """Raise ``ValueError`` for a path that leads out of the tree; ``""`` is the root."""
    parts = path.removeprefix("/").split("/") if path else []
    if "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{path!r} is no plain path")
    if path.startswith("/") and not own:
        raise ValueError(f"{path} is outside of the tree, and the journal was not written here")


def _folder_row(one: Folder) -> list[object]:
    return [one.path, one.mode, one.uid, one.gid, one.mtime_ns]


def _folder_of(row: list[object]) -> Folder:
    path, mode, uid, gid, mtime_ns = row
    if not isinstance(path, str):
        raise TypeError("a folder's path is no string")
    limits = zip((mode, uid, gid, mtime_ns), (0o7777, _MOST_ID, _MOST_ID, _MOST_NS), strict=True)
    numbers = [one for one, most in limits if type(one) is int and -most <= one <= most]
    if len(numbers) != 4 or min(numbers[:3]) < 0:
        raise TypeError(f"the status of {path} is not four numbers")
    return Folder(path=path, mode=numbers[0], uid=numbers[1], gid=numbers[2], mtime_ns=numbers[3])
