"""What an unfinished transaction has to put back: where that is kept, and when it counts.

While a transaction runs, a folder ``.vllm-mods.work-<n>`` lies in the site root, where n is the root's own mtime in
nanoseconds: making that folder is what changes the root's mtime, so there is no other place that could remember it. The
folder holds ``journal.json`` and, under the names that the journal gives, every file as it was. It is removed last.

A folder of that name that no transaction of this tool made there (a mod of yesterday, a package or
whoever packed the tree brought it) is not obeyed: it is set aside, with a word.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused
from vllm_mods.site import journal_text, site
from vllm_mods.site.journal_text import Foreign, Journal, JournalPlace
from vllm_mods.site.open_folders import OpenFolders
from vllm_mods.site.putting_back import INTERRUPTED, put_back, undoing

PREFIX = ".vllm-mods.work-"
ASIDE = ".vllm-mods.aside-"
# Removing the work folder changes the root's mtime too. While that happens, and where the file
# system has such things, an attribute of the root remembers it: setting one changes no mtime.
_ATTRIBUTE = "user.vllm-mods.mtime"
FILE = "journal.json"
STAMP = "stamp"


def find(root: str) -> str | None:
    """Return what may be the work folder of an interrupted transaction, None without one.

    One that was interrupted between its very last two steps has none any more and counts too.
    """
    return next(iter(_named(root)), None) or _remembered(root)


def unfinished(root: str) -> str | None:
    """Return the work folder of a transaction that was interrupted between its first and last change.

    Before and after these the tree is what its receipt says.
    """
    works = _named(root)
    if not works:
        return None
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with closing(OpenFolders(site.Site(root=root), descriptor)) as opened:
            for work in works:
                with suppress(Foreign):
                    if _read(opened, work) is not None:
                        return work
        return None
    finally:
        os.close(descriptor)


def _named(root: str) -> list[str]:
    names = (name for name in sorted(os.listdir(root)) if name.startswith(PREFIX))
    return [f"{root}/{name}" for name in names if _is_time(name[len(PREFIX) :])]


def _remembered(root: str) -> str | None:
    try:
        mtime = os.getxattr(root, _ATTRIBUTE).decode("ascii", "replace")
    except OSError:
        return None
    return f"{root}/{PREFIX}{mtime}" if _is_time(mtime) else None


def _is_time(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) < 2**63


def open_work(opened: OpenFolders) -> str:
    """Make the work folder. From here on ``sweep`` or ``recover`` has to follow."""
    work = f"{opened.root}/{PREFIX}{os.lstat(opened.folder(opened.root)).st_mtime_ns}"
    os.mkdir(opened.at(work), 0o700)
    if not _is_private(os.lstat(opened.folder(work))):
        why = f"{opened.root}: this file system has no permissions, so the journal of the interrupted transaction cannot be trusted; nothing was changed"
        hint = f"findmnt -T {opened.root}  # keep vLLM on a local file system of Linux"
        raise Refused(why, hint=hint)
    os.close(os.open(opened.at(f"{work}/{STAMP}"), site.NEW_FILE, 0o600))
    return work


def _is_private(info: os.stat_result) -> bool:
    return stat.S_ISDIR(info.st_mode) and not info.st_mode & 0o077


def save(opened: OpenFolders, work: str, journal: Journal) -> None:
    """Write the journal and bring it to the disk. The backups lie in the work folder already.

    After a power cut there is a whole journal or none, and with none nothing was staged or replaced
    yet, on whichever file system: so its content goes to the disk before it gets its name, and its
    name (with the backups beside it) before anything that it would have to undo.
    """
    info = os.lstat(opened.folder(work))
    data = journal_text.dump(journal, _place(opened, work))
    new = opened.at(f"{work}/{FILE}.new")
    site.write(new, data, like=info, mode=0o600)
    site.sync([new])
    os.replace(new, opened.at(f"{work}/{FILE}"))
    site.sync([opened.folder(work)])


def _place(opened: OpenFolders, work: str) -> JournalPlace:
    stamp = site.status(opened.at(f"{work}/{STAMP}"))
    times = None if stamp is None else (stamp.st_ino, stamp.st_ctime_ns)
    return JournalPlace(folder=os.lstat(opened.folder(work)).st_ino, stamp=times)


def _read(opened: OpenFolders, work: str) -> Journal | None:
    """Return what has to be put back, None if nothing was changed yet, or nothing is left to do.

    Raises ``Foreign`` for what no transaction of this tool left there.
    """
    info = os.lstat(opened.at(work))
    if not _is_private(info):
        raise Foreign("vllm-mods creates a folder there that only its owner may enter")
    if info.st_uid not in {0, os.geteuid(), os.lstat(opened.folder(opened.root)).st_uid}:
        raise Foreign(f"it belongs to user {info.st_uid}, who is neither you nor the tree's owner")
    folder = opened.folder(work)
    for name in os.listdir(folder):
        entry = os.lstat(f"{folder}/{name}")
        known = name in {FILE, f"{FILE}.new", STAMP} or (name.isascii() and name.isdigit())
        if not known or not stat.S_ISREG(entry.st_mode):
            raise Foreign(f"it contains {name!r}, which vllm-mods does not put there")
        if name == FILE and entry.st_size > limits.RECEIPT:
            raise Foreign(f"its journal has {entry.st_size} bytes; the limit is {limits.RECEIPT}")
    data = site.read(opened.at(f"{work}/{FILE}"))
    return None if data is None else journal_text.parse(data, opened.site, _place(opened, work))


def finish(opened: OpenFolders, work: str) -> None:
    """Remove the journal: from here on the transaction is over, whichever way it went."""
    place = opened.at(f"{work}/{FILE}")
    if site.status(place) is not None:
        os.unlink(place)


def sweep(opened: OpenFolders, work: str) -> None:
    """Remove the work folder of a transaction that is over, and give the root its mtime back."""
    with _given_mtime(opened, int(os.path.basename(work)[len(PREFIX) :])):
        if site.status(opened.at(work)) is not None:
            for entry in os.listdir(opened.folder(work)):
                os.unlink(opened.at(f"{work}/{entry}"))
            opened.remove_folder(work)


@contextmanager
def _given_mtime(opened: OpenFolders, mtime_ns: int) -> Iterator[None]:
    """Give the root an mtime after what is done to its entries; whoever finds that undone does it."""
    root = opened.folder(opened.root)
    marked = True
    try:
        os.setxattr(root, _ATTRIBUTE, str(mtime_ns).encode())
    except OSError:
        marked = False  # a kill in between two of the calls below then costs the root's mtime
    yield
    os.utime(root, ns=(mtime_ns, mtime_ns))
    if marked:
        os.removexattr(root, _ATTRIBUTE)


def recover(opened: OpenFolders, note: Callable[[str], object]) -> bool:
    """Put back what an interrupted transaction left; True if there was one.

    What only has the name of one is set aside, and ``note`` is told. Raises ``NotRestored`` if a file
    was changed since then by somebody else; everything else is put back, and nothing is thrown away.
    """
    was_interrupted = False
    with undoing(opened, INTERRUPTED):
        for work in _named(opened.root):
            try:
                journal = _read(opened, work)
            except Foreign as error:
                note(_set_aside(opened, work, str(error)))
                continue
            was_interrupted = True
            if journal is not None:
                opened.allow(journal.paths())
                put_back(opened, work, journal)
                finish(opened, work)
            sweep(opened, work)
        if (work_before := _remembered(opened.root)) is not None:
            was_interrupted = True
            sweep(opened, work_before)  # interrupted between the last two steps of all
    return was_interrupted


def _set_aside(opened: OpenFolders, work: str, why: str) -> str:
    n = 0
    while site.status(opened.at(aside := f"{opened.root}/{ASIDE}{n}")) is not None:
        n += 1
    try:
        with _given_mtime(opened, os.stat(opened.folder(opened.root)).st_mtime_ns):
            os.rename(opened.at(work), opened.at(aside))
    except OSError as error:
        why = f"{work} is named like the journal of an interrupted transaction, but is not a journal: {why}. It could not be moved away ({error.strerror}), so nothing was changed"
        raise Refused(why, hint=f"mv {work} {aside}") from error
    return f"{work} was named like the journal of an interrupted transaction, but is not a journal: {why}. vllm-mods did not execute it and moved it to {aside}. If this tree is a copy of one with an interrupted apply, run apply or revert there, then copy the tree again"
