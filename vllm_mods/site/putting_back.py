"""Put back, file by file and folder by folder, what a transaction has changed."""

import errno
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from vllm_mods.base.errors import NotRestored
from vllm_mods.site import obstacles, site, undone
from vllm_mods.site.journal_text import Folder, Journal, Step
from vllm_mods.site.open_folders import OpenFolders
from vllm_mods.trees.folder import FolderTree

_SHOWN = 20
_AGAIN = "  # then run the command again"
INTERRUPTED = "an interrupted transaction"


def give_mtime(place: str, mtime_ns: int) -> None:
    """Give a folder the mtime it had, unless it has it still: that might not be ours to set."""
    if os.stat(place).st_mtime_ns != mtime_ns:
        os.utime(place, ns=(mtime_ns, mtime_ns))


def sync_folders(opened: OpenFolders, folders: Iterable[str]) -> None:
    """Bring the entries of those folders to the disk that lie on another file system than the root.

    Call it before ``finish``: the journal is all that could undo or explain them. A file system
    keeps its own changes of folders in order, but none waits for another.
    """
    device = os.stat(opened.folder(opened.root)).st_dev
    places = [opened.folder(opened.site.absolute(path)) for path in folders]
    site.sync([place for place in places if os.stat(place).st_dev != device])


@contextmanager
def undoing(opened: OpenFolders, what: str) -> Iterator[None]:
    """Turn an error of the system while ``what`` is undone into ``NotRestored``: the next command tries again."""
    try:
        with opened.naming():
            yield
    except OSError as error:
        why = f"{opened.root}: {what} could not be undone: {error}; the originals are still in the tree"
        hint = obstacles.hint(error, str(error.filename), opened.root) + _AGAIN
        raise NotRestored(why, hint=hint) from error


def put_back(
    opened: OpenFolders,
    work: str,
    journal: Journal,
    *,
    reached: int | None = None,
    what: str = INTERRUPTED,
) -> None:
    """Bring every file and folder back to where it was, as far as that can be done.

    May be called any number of times. ``reached`` counts the steps that were begun, where that is known: the
    others are left alone, whatever lies there. Raises ``NotRestored``, of ``what``, as ``recover`` does.
    """
    real = opened.site.absolute
    theirs = undone.installed_anew(
        FolderTree(opened.root),
        journal.steps,
        lambda step: None if step.backup is None else site.read(opened.at(f"{work}/{step.backup}")),
    )
    # no uninstall removes a folder that something was staged in
    emptied = sorted({os.path.dirname(path) for path in theirs}, reverse=True)
    problems: list[tuple[str, str]] = []

    def do(place: str, part: Callable[..., tuple[str, str] | None], *given: object) -> None:
        try:
            with opened.naming():
                problem = part(opened, *given)
        except OSError as error:
            problem = (f"{place}: {error}", obstacles.hint(error, place, opened.root))
        if problem is not None:
            problems.append(problem)

    for gone in journal.gone:
        do(real(gone.path), _make_again, gone)
    for step in journal.steps:
        do(step.temp, _unlink, step.temp)
    mine = [step for step in journal.steps[:reached] if step.path not in theirs]
    for step in mine:
        do(real(step.path), _put_back, work, step)
    for folder_made in (*journal.made[::-1], *emptied):
        do(real(folder_made), _unmake, real(folder_made))
    settle = functools.partial(_settle, lost=bool(theirs))
    for folder in (*journal.kept, *journal.gone):
        do(real(folder.path), settle, folder)
    if problems:
        lines = "".join(f"\n  {what}" for what, _hint in problems[:_SHOWN])
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        why = f"{opened.root}: {what} could not be undone in full{lines}{more}\neverything else was restored; the originals of these files are in {work}"
        raise NotRestored(why, hint=problems[0][1] + _AGAIN)


def _make_again(opened: OpenFolders, gone: Folder) -> None:
    opened.make_folder(opened.site.absolute(gone.path), owner=(gone.uid, gone.gid), mode=gone.mode)


def _unlink(opened: OpenFolders, place: str) -> None:
    if _is_there(opened, place):
        os.unlink(opened.at(place))


def _settle(opened: OpenFolders, folder: Folder, *, lost: bool) -> None:
    """Give a folder its mtime, and bring it to the disk; ``lost`` says that an installer may have removed it."""
    place = opened.site.absolute(folder.path)
    if not lost or _is_there(opened, place):
        give_mtime(opened.folder(place), folder.mtime_ns)
        sync_folders(opened, [folder.path])


def _is_there(opened: OpenFolders, place: str) -> bool:
    """Tell whether there is such a file: the folder that it would be in need not be there either."""
    try:
        return site.status(opened.at(place)) is not None
    except FileNotFoundError:
        return False


def _put_back(opened: OpenFolders, work: str, step: Step) -> tuple[str, str] | None:
    """Put one file back; return what is wrong and what to do, if that cannot be done."""
    path = opened.site.absolute(step.path)
    info = site.status(opened.at(path)) if _is_there(opened, path) else None
    try:
        digest = None if info is None else site.digest(opened.at(path))
    except OSError as error:  # a folder or a link lies there now
        return (f"{step.path}: {error.strerror}, and cannot be put back", f"mv {path} {path}.mine")
    if step.before is None or step.backup is None:
        # With another name beside this one (an original that was not replaced yet, and was then
        # edited in place) nothing is lost either.
        if info is not None and (digest == step.after or info.st_nlink > 1):
            os.unlink(opened.at(path))
        elif info is not None:
            return (f"{step.path}: another program changed this new file", f"mv {path} {path}.mine")
        return None
    return _put_backup(opened, work, step, info, digest)


def _put_backup(
    opened: OpenFolders, work: str, step: Step, info: os.stat_result | None, digest: str | None
) -> tuple[str, str] | None:
    backup, path = f"{work}/{step.backup}", opened.site.absolute(step.path)
    saved_at, place = opened.at(backup), opened.at(path)
    saved = site.status(saved_at)
    if saved is None and digest == step.before:
        return None  # an earlier recovery got this far
    if saved is not None and info is not None and os.path.samestat(saved, info):
        return None  # never replaced
    if saved is None or site.digest(saved_at) != step.before:
        return (f"{step.path}: its original {backup} is damaged", f"ls -la {path} {backup}")
    # Bytecode is no work of anybody's: an import since then made it, of what lay there half done.
    if info is not None and digest not in {step.before, step.after} and path[-4:] != ".pyc":
        return (f"{step.path} was changed; its original is {backup}", f"cp -p {backup} {path}")
    try:
        os.replace(saved_at, place)  # needs no space on a full disk
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        site.preserve(saved_at, opened.at(step.temp))
        os.replace(opened.at(step.temp), place)
    return None


def _unmake(opened: OpenFolders, place: str) -> None:
    try:
        opened.remove_folder(place)
    except OSError as error:
        # Somebody else put a file into it: theirs, so the folder stays.
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
            raise
