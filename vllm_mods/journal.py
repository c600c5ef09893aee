"""What an unfinished transaction has to put back, and putting it back.

While a transaction runs, a folder ``.vllm-mods.work-<n>`` lies in the site root, where n
is the root's own mtime in nanoseconds: making that folder is what changes the root's
mtime, so there is no other place that could remember it. The folder holds ``journal.json``
and, under the names that the journal gives, every file as it was. It is removed last.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods import site
from vllm_mods.errors import NotRestored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_mods.site import Site

PREFIX = ".vllm-mods.work-"
# Removing the work folder changes the root's mtime too. While that happens, and where the file
# system has such things, an attribute of the root remembers it: setting one changes no mtime.
_ATTRIBUTE = "user.vllm-mods.mtime"
FILE = "journal.json"
_SCHEMA = 1


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


def folder(path: str, info: os.stat_result) -> Folder:
    """Describe a folder."""
    return Folder(
        path=path,
        mode=stat.S_IMODE(info.st_mode),
        uid=info.st_uid,
        gid=info.st_gid,
        mtime_ns=info.st_mtime_ns,
    )


def find(root: str) -> str | None:
    """Return the work folder of an interrupted transaction in a site root, None without one.

    One that was interrupted between its very last two steps has none any more and counts too.
    """
    for name in os.listdir(root):
        if name.startswith(PREFIX) and name[len(PREFIX) :].lstrip("-").isdigit():
            return f"{root}/{name}"
    try:
        mtime = os.getxattr(root, _ATTRIBUTE).decode("ascii", "replace")
    except OSError:
        return None
    return f"{root}/{PREFIX}{mtime}" if mtime.lstrip("-").isdigit() else None


def open_work(root: str) -> str:
    """Make the work folder. From here on ``sweep`` or ``recover`` has to follow."""
    work = f"{root}/{PREFIX}{os.lstat(root).st_mtime_ns}"
    os.mkdir(work, 0o700)
    return work


def save(work: str, journal: Journal) -> None:
    """Write the journal and bring it to the disk. The backups lie in the work folder already.

    After a power cut there is a whole journal or none, and with none nothing was staged or replaced
    yet, on whichever file system: so its content goes to the disk before it gets its name, and its
    name (with the backups beside it) before anything that it would have to undo.
    """
    raw = {
        "schema": _SCHEMA,
        "steps": [[one.path, one.before, one.after, one.backup, one.temp] for one in journal.steps],
        "kept": [_folder_row(one) for one in journal.kept],
        "made": list(journal.made),
        "gone": [_folder_row(one) for one in journal.gone],
    }
    data = json.dumps(raw).encode()
    new = f"{work}/{FILE}.new"
    site.write(new, data, like=os.lstat(work), mode=0o600)
    site.sync([new])
    os.replace(new, f"{work}/{FILE}")
    site.sync([work])


def give_mtime(place: str, mtime_ns: int) -> None:
    """Give a folder the mtime it had, unless it has it still: that might not be ours to set."""
    if os.stat(place).st_mtime_ns != mtime_ns:
        os.utime(place, ns=(mtime_ns, mtime_ns))


def sync_folders(where: Site, folders: Iterable[str]) -> None:
    """Bring the entries of those folders to the disk that lie on another file system than the root.

    Call it before ``finish``: the journal is all that could undo or explain them. A file system
    keeps its own changes of folders in order, but none waits for another.
    """
    device = os.stat(where.root).st_dev
    places = [where.absolute(path) for path in folders]
    site.sync([place for place in places if os.stat(place).st_dev != device])


def finish(work: str) -> None:
    """Remove the journal: from here on the transaction is over, whichever way it went."""
    if site.status(f"{work}/{FILE}") is not None:
        os.unlink(f"{work}/{FILE}")


def sweep(work: str) -> None:
    """Remove the work folder of a transaction that is over, and give the root its mtime back."""
    root, name = os.path.split(work)
    mtime = name[len(PREFIX) :]
    marked = True
    try:
        os.setxattr(root, _ATTRIBUTE, mtime.encode())
    except OSError:
        marked = False  # a kill in between two of the calls below then costs the root's mtime
    if site.status(work) is not None:
        for entry in os.listdir(work):
            os.unlink(f"{work}/{entry}")
        os.rmdir(work)
    os.utime(root, ns=(int(mtime), int(mtime)))
    if marked:
        os.removexattr(root, _ATTRIBUTE)


def recover(where: Site) -> bool:
    """Put back what an interrupted transaction left; True if there was one.

    Raises ``NotRestored`` if a file was changed since then by somebody else; everything
    else is put back, and nothing is thrown away.
    """
    try:
        work = find(where.root)
        if work is None:
            return False
        data = site.read(f"{work}/{FILE}")
        if data is not None:
            put_back(where, work, _parse(data, work))
            finish(work)
        sweep(work)
    except OSError as error:
        raise NotRestored(
            f"{where.root}: an interrupted transaction could not be undone: {error}; what is "
            "needed for that lies in the tree",
            hint="put that right, then run the command again",
        ) from error
    return True


def put_back(where: Site, work: str, journal: Journal, *, reached: int | None = None) -> None:
    """Bring every file and folder back to where it was. May be called any number of times.

    ``reached`` counts the steps that were begun, where that is known: the others are left
    alone, whatever lies there. Raises ``NotRestored`` as ``recover`` does, and ``OSError``.
    """
    for gone in journal.gone:
        site.make_folder(where.absolute(gone.path), owner=(gone.uid, gone.gid), mode=gone.mode)
    for step in journal.steps:
        if site.status(step.temp) is not None:
            os.unlink(step.temp)
    tried = [_put_back(where, work, step) for step in journal.steps[:reached]]
    for made in reversed(journal.made):
        _unmake(where.absolute(made))
    folders = [*journal.kept, *journal.gone]
    for one in folders:
        give_mtime(where.absolute(one.path), one.mtime_ns)
    sync_folders(where, [one.path for one in folders])
    problems = [problem for problem in tried if problem is not None]
    if problems:
        lines = "".join(f"\n  {what}" for what, _hint in problems)
        raise NotRestored(
            f"{where.root}: an interrupted transaction could not be undone in full{lines}\n"
            f"everything else is as it was before; what is needed for the rest lies in {work}",
            hint=problems[0][1] + "  # then run the command again",
        )


def _put_back(where: Site, work: str, step: Step) -> tuple[str, str] | None:
    """Put one file back; return what is wrong and what to do, if that cannot be done."""
    path = where.absolute(step.path)
    info = site.status(path)
    try:
        there = None if info is None else site.digest(path)
    except OSError as error:  # a folder or a link lies there now
        return (
            f"{step.path}: {error.strerror}, so it cannot be put back",
            f"mv {path} {path}.mine",
        )
    if step.before is None or step.backup is None:
        # With another name beside this one (an original that was not replaced yet, and was then
        # edited in place) nothing is lost either.
        if info is not None and (there == step.after or info.st_nlink > 1):
            os.unlink(path)
        elif info is not None:
            return (
                f"{step.path}: was new, and somebody has changed it since",
                f"mv {path} {path}.mine",
            )
        return None
    return _put_backup(f"{work}/{step.backup}", path, info, there, step)


def _put_backup(
    backup: str, path: str, info: os.stat_result | None, there: str | None, step: Step
) -> tuple[str, str] | None:
    saved = site.status(backup)
    if saved is None and there == step.before:
        return None  # an earlier recovery got this far
    if saved is not None and info is not None and os.path.samestat(saved, info):
        return None  # never replaced
    if saved is None or site.digest(backup) != step.before:
        return (f"{step.path}: its original {backup} is damaged", f"ls -la {path} {backup}")
    if info is not None and there not in {step.before, step.after}:
        return (
            f"{step.path}: somebody has changed it since; its original is {backup}",
            f"cp -p {backup} {path}",
        )
    try:
        os.replace(backup, path)  # needs no space on a full disk
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        site.preserve(backup, step.temp)
        os.replace(step.temp, path)
    return None


def _unmake(place: str) -> None:
    try:
        os.rmdir(place)
    except FileNotFoundError:
        pass
    except OSError as error:
        # Somebody else put a file into it: theirs, so the folder stays.
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise


def _parse(data: bytes, work: str) -> Journal:
    try:
        raw = json.loads(data)
        if raw["schema"] != _SCHEMA:
            raise ValueError(f"schema {raw['schema']!r}")  # noqa: TRY301
        return Journal(
            steps=tuple(
                Step(path=path, before=before, after=after, backup=backup, temp=temp)
                for path, before, after, backup, temp in raw["steps"]
            ),
            kept=tuple(_folder_of(row) for row in raw["kept"]),
            made=tuple(raw["made"]),
            gone=tuple(_folder_of(row) for row in raw["gone"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise NotRestored(
            f"{work}/{FILE}: the journal of an interrupted transaction cannot be read "
            f"({error}); the files as they were before lie beside it",
            hint=f"ls -la {work}  # put them back by hand, or restore vLLM; then rm -r {work}",
        ) from error


def _folder_row(one: Folder) -> list[object]:
    return [one.path, one.mode, one.uid, one.gid, one.mtime_ns]


def _folder_of(row: list[object]) -> Folder:
    path, mode, uid, gid, mtime_ns = row
    if not isinstance(path, str):
        raise TypeError("a folder's path is no string")
    numbers = [one for one in (mode, uid, gid, mtime_ns) if isinstance(one, int)]
    if len(numbers) != 4:
        raise TypeError(f"the status of {path} is not four numbers")
    return Folder(path=path, mode=numbers[0], uid=numbers[1], gid=numbers[2], mtime_ns=numbers[3])
