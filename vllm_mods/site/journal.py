"""What an unfinished transaction has to put back, and putting it back.

While a transaction runs, a folder ``.vllm-mods.work-<n>`` lies in the site root, where n
is the root's own mtime in nanoseconds: making that folder is what changes the root's
mtime, so there is no other place that could remember it. The folder holds ``journal.json``
and, under the names that the journal gives, every file as it was. It is removed last.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from vllm_mods.base.errors import NotRestored
from vllm_mods.site import journal_text, site, undone
from vllm_mods.site.journal_text import Folder, Journal, Step
from vllm_mods.trees.folder import FolderTree

__all__ = ["Folder", "Journal", "Step"]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_mods.site.open_folders import Held

PREFIX = ".vllm-mods.work-"
# Removing the work folder changes the root's mtime too. While that happens, and where the file
# system has such things, an attribute of the root remembers it: setting one changes no mtime.
_ATTRIBUTE = "user.vllm-mods.mtime"
FILE = "journal.json"


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
        if name.startswith(PREFIX) and _is_time(name[len(PREFIX) :]):
            return f"{root}/{name}"
    try:
        mtime = os.getxattr(root, _ATTRIBUTE).decode("ascii", "replace")
    except OSError:
        return None
    return f"{root}/{PREFIX}{mtime}" if _is_time(mtime) else None


def _is_time(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) < 2**63


def open_work(held: Held) -> str:
    """Make the work folder. From here on ``sweep`` or ``recover`` has to follow."""
    work = f"{held.root}/{PREFIX}{os.lstat(held.folder(held.root)).st_mtime_ns}"
    os.mkdir(held.at(work), 0o700)
    return work


def save(held: Held, work: str, journal: Journal) -> None:
    """Write the journal and bring it to the disk. The backups lie in the work folder already.

    After a power cut there is a whole journal or none, and with none nothing was staged or replaced
    yet, on whichever file system: so its content goes to the disk before it gets its name, and its
    name (with the backups beside it) before anything that it would have to undo.
    """
    info = os.lstat(held.folder(work))
    data = journal_text.dump(journal, info.st_ino)
    new = held.at(f"{work}/{FILE}.new")
    site.write(new, data, like=info, mode=0o600)
    site.sync([new])
    os.replace(new, held.at(f"{work}/{FILE}"))
    site.sync([held.folder(work)])


def give_mtime(place: str, mtime_ns: int) -> None:
    """Give a folder the mtime it had, unless it has it still: that might not be ours to set."""
    if os.stat(place).st_mtime_ns != mtime_ns:
        os.utime(place, ns=(mtime_ns, mtime_ns))


def sync_folders(held: Held, folders: Iterable[str]) -> None:
    """Bring the entries of those folders to the disk that lie on another file system than the root.

    Call it before ``finish``: the journal is all that could undo or explain them. A file system
    keeps its own changes of folders in order, but none waits for another.
    """
    device = os.stat(held.folder(held.root)).st_dev
    places = [held.folder(held.site.absolute(path)) for path in folders]
    site.sync([place for place in places if os.stat(place).st_dev != device])


def finish(held: Held, work: str) -> None:
    """Remove the journal: from here on the transaction is over, whichever way it went."""
    place = held.at(f"{work}/{FILE}")
    if site.status(place) is not None:
        os.unlink(place)


def sweep(held: Held, work: str) -> None:
    """Remove the work folder of a transaction that is over, and give the root its mtime back."""
    root = held.folder(held.root)
    mtime = os.path.basename(work)[len(PREFIX) :]
    marked = True
    try:
        os.setxattr(root, _ATTRIBUTE, mtime.encode())
    except OSError:
        marked = False  # a kill in between two of the calls below then costs the root's mtime
    if site.status(held.at(work)) is not None:
        for entry in os.listdir(held.folder(work)):
            os.unlink(held.at(f"{work}/{entry}"))
        held.remove_folder(work)
    os.utime(root, ns=(int(mtime), int(mtime)))
    if marked:
        os.removexattr(root, _ATTRIBUTE)


def recover(held: Held) -> bool:
    """Put back what an interrupted transaction left; True if there was one.

    Raises ``NotRestored`` if a file was changed since then by somebody else; everything
    else is put back, and nothing is thrown away.
    """
    try:
        with held.naming():
            work = find(held.root)
            if work is None:
                return False
            _put_back_all(held, work)
            sweep(held, work)
    except OSError as error:
        raise NotRestored(
            f"{held.root}: an interrupted transaction could not be undone: {error}; what is "
            "needed for that lies in the tree",
            hint="put that right, then run the command again",
        ) from error
    return True


def _put_back_all(held: Held, work: str) -> None:
    if site.status(held.at(work)) is None:
        return  # interrupted between the last two steps of all
    data = site.read(held.at(f"{work}/{FILE}"))
    if data is not None:
        inode = os.lstat(held.folder(work)).st_ino
        put_back(held, work, journal_text.parse(data, work, FILE, held.site, inode))
        finish(held, work)


def put_back(held: Held, work: str, journal: Journal, *, reached: int | None = None) -> None:
    """Bring every file and folder back to where it was. May be called any number of times.

    ``reached`` counts the steps that were begun, where that is known: the others are left
    alone, whatever lies there. Raises ``NotRestored`` as ``recover`` does, and ``OSError``.
    """
    real = held.site.absolute
    for gone in journal.gone:
        held.make_folder(real(gone.path), owner=(gone.uid, gone.gid), mode=gone.mode)
    for step in journal.steps:
        if _is_there(held, step.temp):
            os.unlink(held.at(step.temp))
    theirs = undone.installed_anew(
        FolderTree(held.root),
        journal.steps,
        lambda step: None if step.backup is None else site.read(held.at(f"{work}/{step.backup}")),
    )
    tried = [
        _put_back(held, work, step) for step in journal.steps[:reached] if step.path not in theirs
    ]
    for made in reversed(journal.made):
        _unmake(held, real(made))
    for emptied in sorted({os.path.dirname(path) for path in theirs}, key=len, reverse=True):
        _unmake(held, real(emptied))  # no uninstall removes a folder that something was staged in
    folders = [
        one
        for one in (*journal.kept, *journal.gone)
        if not theirs or _is_there(held, real(one.path))
    ]
    for one in folders:
        give_mtime(held.folder(real(one.path)), one.mtime_ns)
    sync_folders(held, [one.path for one in folders])
    problems = [problem for problem in tried if problem is not None]
    if problems:
        lines = "".join(f"\n  {what}" for what, _hint in problems)
        raise NotRestored(
            f"{held.root}: an interrupted transaction could not be undone in full{lines}\n"
            f"everything else is as it was before; what is needed for the rest lies in {work}",
            hint=problems[0][1] + "  # then run the command again",
        )


def _is_there(held: Held, place: str) -> bool:
    """Tell whether there is such a file: the folder that it would be in need not be there either."""
    try:
        return site.status(held.at(place)) is not None
    except FileNotFoundError:
        return False


def _put_back(held: Held, work: str, step: Step) -> tuple[str, str] | None:
    """Put one file back; return what is wrong and what to do, if that cannot be done."""
    path = held.site.absolute(step.path)
    info = site.status(held.at(path)) if _is_there(held, path) else None
    try:
        there = None if info is None else site.digest(held.at(path))
    except OSError as error:  # a folder or a link lies there now
        return (
            f"{step.path}: {error.strerror}, so it cannot be put back",
            f"mv {path} {path}.mine",
        )
    if step.before is None or step.backup is None:
        # With another name beside this one (an original that was not replaced yet, and was then
        # edited in place) nothing is lost either.
        if info is not None and (there == step.after or info.st_nlink > 1):
            os.unlink(held.at(path))
        elif info is not None:
            return (
                f"{step.path}: was new, and somebody has changed it since",
                f"mv {path} {path}.mine",
            )
        return None
    return _put_backup(held, work, step, info, there)


def _put_backup(
    held: Held, work: str, step: Step, info: os.stat_result | None, there: str | None
) -> tuple[str, str] | None:
    backup, path = f"{work}/{step.backup}", held.site.absolute(step.path)
    kept, place = held.at(backup), held.at(path)
    saved = site.status(kept)
    if saved is None and there == step.before:
        return None  # an earlier recovery got this far
    if saved is not None and info is not None and os.path.samestat(saved, info):
        return None  # never replaced
    if saved is None or site.digest(kept) != step.before:
        return (f"{step.path}: its original {backup} is damaged", f"ls -la {path} {backup}")
    # Bytecode is no work of anybody's: an import since then made it, of what lay there half done.
    if info is not None and there not in {step.before, step.after} and path[-4:] != ".pyc":
        return (
            f"{step.path}: somebody has changed it since; its original is {backup}",
            f"cp -p {backup} {path}",
        )
    try:
        os.replace(kept, place)  # needs no space on a full disk
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        site.preserve(kept, held.at(step.temp))
        os.replace(held.at(step.temp), place)
    return None


def _unmake(held: Held, place: str) -> None:
    try:
        held.remove_folder(place)
    except FileNotFoundError:
        pass
    except OSError as error:
        # Somebody else put a file into it: theirs, so the folder stays.
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
