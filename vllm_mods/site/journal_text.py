"""The journal of a transaction as text: what has to be put back, and under which names it lies. Pure.

One that lies in a tree may have come with it from a stranger: nothing in it leads out of the tree.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, NamedTuple

from vllm_mods.base.errors import NotRestored
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.decode import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_mods.site.site import Site

_SCHEMA = 1

_MOST_ID, _MOST_NS = 2**32 - 2, 2**63 - 1


def _within(least: int, most: int) -> Callable[[int], str | None]:
    return lambda number: None if least <= number <= most else f"{number} is out of bounds"


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
    mode: Annotated[int, _within(0, 0o7777)]
    uid: Annotated[int, _within(0, _MOST_ID)]
    gid: Annotated[int, _within(0, _MOST_ID)]
    mtime_ns: Annotated[int, _within(-_MOST_NS, _MOST_NS)]


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
        **journal._asdict(),
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
        read = decode(
            Journal,
            {
                "steps": _named(Step, raw["steps"]),
                "kept": _named(Folder, raw["kept"]),
                "made": raw["made"],
                "gone": _named(Folder, raw["gone"]),
            },
        )
        for path in (
            *(one.path for part in (read.steps, read.kept, read.gone) for one in part),
            *read.made,
        ):
            _check_path(path, own=raw.get("folder") == inode)
        return read._replace(steps=tuple(_step_of(step, where) for step in read.steps))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotRestored(
            f"{work}/{name}: the journal of an interrupted transaction cannot be read "
            f"({error}); the files as they were before lie beside it",
            hint=f"ls -la {work}  # put them back by hand, or restore vLLM; then rm -r {work}",
        ) from error


def _named(kind: type[Step | Folder], rows: list[list[object]]) -> list[dict[str, object]]:
    return [dict(zip(kind._fields, row, strict=True)) for row in rows]


def _step_of(step: Step, where: Site) -> Step:
    if step.backup is not None and not (step.backup.isascii() and step.backup.isdigit()):
        raise ValueError(f"the step of {step.path!r} is none")
    # Always beside the file: of what is written, the name counts.
    folder, name = os.path.dirname(where.absolute(step.path)), os.path.basename(step.temp)
    if not name.startswith(".") or ".vllm-mods" not in name:
        raise ValueError(f"{step.temp} is no name of a staged file")
    return step._replace(temp=f"{folder}/{name}")


def _check_path(path: str, *, own: bool) -> None:
    """Raise ``ValueError`` for a path that leads out of the tree; ``""`` is the root."""
    parts = path.removeprefix("/").split("/") if path else []
    if "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{path!r} is no plain path")
    if path.startswith("/") and not own:
        raise ValueError(f"{path} is outside of the tree, and the journal was not written here")
