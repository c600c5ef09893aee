"""The journal of a transaction as text: what has to be put back, and under which names it lies. Pure.

One that lies in a tree may have come with it from a stranger, or from a mod: it counts only in the
folder that it was written in, and nothing in it points outside the tree but by proof of that.
"""

import json
import os
import stat
from collections.abc import Callable
from typing import Annotated, NamedTuple, Self

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.untrusted import is_plain_path, json_of
from vllm_mods.formats.schema import decode, encode
from vllm_mods.site.site import Site

_SCHEMA = 2

_MOST_ID, _MOST_NS = 2**32 - 2, 2**63 - 1


def _within(least: int, most: int) -> Callable[[int], str | None]:
    return lambda number: None if least <= number <= most else f"{number} is out of bounds"


class Foreign(ValueError):
    """A journal, or the folder of one, that no transaction of this tool wrote there; says why."""


class JournalPlace(NamedTuple):
    """Where a journal lies, by what nobody can pack: the ``folder``'s inode, and the ``stamp``.

    That is the inode and the change time of a file that is made with the folder and not touched
    again. Whoever packs a tree can guess an inode; a change time, to the nanosecond, hardly.
    """

    folder: int
    stamp: tuple[int, int] | None


class Step(NamedTuple):
    """One file of the tree, by sha256 before and after; None stands for "no such file".

    ``backup`` is its name in the work folder, ``temp`` the absolute path that the new form is staged at.
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

    @classmethod
    def of(cls, path: str, info: os.stat_result) -> Self:
        """Describe a folder."""
        return cls(path, stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, info.st_mtime_ns)


class Journal(NamedTuple):
    """``kept`` folders get their mtime back, ``made`` ones are removed, ``gone`` ones made again.

    ``made`` and ``gone`` have outer folders before inner ones.
    """

    steps: tuple[Step, ...]
    kept: tuple[Folder, ...]
    made: tuple[str, ...]
    gone: tuple[Folder, ...]

    def paths(self) -> list[str]:
        """Return the path of everything that it names."""
        named = [one.path for part in (self.steps, self.kept, self.gone) for one in part]
        return [*named, *self.made]


def dump(journal: Journal, place: JournalPlace) -> bytes:
    """Write a journal for the place that it is going to lie in."""
    return json.dumps({"schema": _SCHEMA, **place._asdict(), **encode(journal)}).encode()


def parse(data: bytes, where: Site, place: JournalPlace) -> Journal:
    """Read a journal. Raises ``Foreign`` for one that was not written in this very ``place``.

    It names nothing but files of the tree. Outside of it, in a workspace, the inode of the folder is
    not proof enough; in the tree it is, since a `chown -R` or a restored label changes the stamp.
    """
    try:
        raw = json_of(data)
        if raw["schema"] != _SCHEMA:
            raise ValueError(f"schema {raw['schema']!r}")  # noqa: TRY301
        read = decode(Journal, raw, more=True, whole=True)
        steps = tuple(_step_of(step, where) for step in read.steps)
        own = place.stamp is not None and raw.get("stamp") == list(place.stamp)
        for path in read.paths():
            _check_path(path, own=own)
    except Foreign:
        raise
    except (ManifestError, ValueError, KeyError, TypeError) as error:
        raise Foreign(f"its journal cannot be read ({error})") from error
    if raw.get("folder") != place.folder:
        raise Foreign("its journal was not written in this folder")
    return read._replace(steps=steps)


def _step_of(step: Step, where: Site) -> Step:
    if step.backup is not None and not (step.backup.isascii() and step.backup.isdigit()):
        raise ValueError(f"the step of {step.path!r} is invalid")
    # Always beside the file: of what is written, the name counts.
    folder, name = os.path.dirname(where.absolute(step.path)), os.path.basename(step.temp)
    if not name.startswith(".") or ".vllm-mods" not in name:
        raise ValueError(f"{step.temp} is not the name of a staged file")
    return step._replace(temp=f"{folder}/{name}")


def _check_path(path: str, *, own: bool) -> None:
    """Raise ``ValueError`` for a path that points outside the tree; ``""`` is the root."""
    if path and not is_plain_path(path.removeprefix("/")):
        raise ValueError(f"{path!r} is not a plain path")
    if path.startswith("/") and not own:
        raise Foreign(f"its journal names {path}, outside the tree, so it was not written here")
