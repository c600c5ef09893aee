"""The only writer of a target tree: a transition happens whole, or nothing does.

Lock, recover, draft, back up, journal, stage, replace, commit. Until the journal is removed, every failure
(an error, a signal, a kill that the next command finds) brings back every byte, mode, owner and mtime.
"""

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vllm_mods.base.errors import Refused
from vllm_mods.formats import receipt
from vllm_mods.site import bytecode, journal, obstacles, putting_back, site
from vllm_mods.site.open_folders import OpenFolders
from vllm_mods.site.staging import draft
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.step_list import Draft, Op
from vllm_mods.site.transitions import Transition

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Outcome(NamedTuple):
    """What a commit did: the paths changed, our own files aside, and what one should know of it."""

    changed: tuple[str, ...]
    notes: tuple[str, ...]


def commit(
    root: str,
    transition: Transition,
    *,
    workspace: str | None = None,
    source_date_epoch: int | None = None,
    keep_links: bool = False,
    write: bool = True,
) -> Outcome:
    """Bring the tree at the site root ``root`` from what it is to what ``transition`` says.

    ``workspace`` is the absolute folder outside the root that chat templates may go to;
    ``source_date_epoch`` (seconds) the mtime of every file written and folder made, else now.
    ``keep_links`` refuses hard-linked files, whose other names would keep the old content. Folders that
    stay keep their mtimes. Without ``write`` nothing is written, and the same is returned and refused.

    Raises ``Refused`` if nothing was changed or everything was put back, ``NotRestored`` if not,
    and passes on an interruption after everything was put back.
    """
    root = os.path.realpath(root)
    notes: list[str] = []
    if not write:
        _, drafted = _drafted(root, transition, workspace, keep_links=keep_links)
        return Outcome(_changed(drafted), drafted.notes)
    with _locked(root) as lock:
        _recovered(root, lock, notes.append)
        where, drafted = _drafted(root, transition, workspace, keep_links=keep_links)
        notes += drafted.notes
        if drafted.ops:
            notes += _run(OpenFolders(where, lock), drafted, source_date_epoch)
    return Outcome(_changed(drafted), tuple(notes))


def _drafted(
    root: str, transition: Transition, workspace: str | None, *, keep_links: bool
) -> tuple[site.Site, Draft]:
    state = read_state(root)
    applied = state.receipt
    # Plans are made without the lock. Files are compared one by one; this is for all others.
    if state.mods != transition.before:
        why = f"{root}: another vllm-mods has just changed the mods, so this run did nothing"
        raise Refused(why, hint="run the command again")
    if applied is not None and applied.workspace is not None:
        workspace = applied.workspace  # there is one for a tree
    where = site.Site(root, () if workspace is None else (workspace,))
    try:
        return where, draft(where, applied, transition, keep_links=keep_links)
    except OSError as error:
        raise obstacles.refusal(root, error) from error


def _changed(drafted: Draft) -> tuple[str, ...]:
    steps = ((op.step.path, op.rewrites) for op in drafted.ops)
    paths = ((path, own or path.startswith(receipt.STATE)) for path, own in steps)
    return tuple(path for path, own in paths if not own or path.startswith(f"{receipt.TEMPLATES}/"))


def recover(root: str, note: Callable[[str], object] = lambda _said: None) -> bool:
    """Undo an interrupted transaction, if there is one; tell whether there was.

    ``note`` is told what had the name of one and was set aside. Raises ``Refused`` while another
    process works on the tree, and ``NotRestored`` if a file was changed since by somebody else.
    """
    root = os.path.realpath(root)
    try:
        if journal.find(root) is None:
            return False
    except OSError as error:
        raise obstacles.refusal(root, error) from error
    with _locked(root) as lock:
        return _recovered(root, lock, note)


def _recovered(root: str, lock: int, note: Callable[[str], object]) -> bool:
    with contextlib.closing(OpenFolders(site.Site(root=root), lock)) as opened:
        return journal.recover(opened, note)


@contextlib.contextmanager
def _locked(root: str) -> Iterator[int]:
    """Lock the site root itself, and give it opened: no lock file that could be left, or would have to be made."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise obstacles.refusal(root, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            why = f"{root}: another vllm-mods is working on this tree; nothing was changed"
            raise Refused(why, hint="wait for that program, then run the command again") from error
        except OSError as error:
            why = "the folder cannot be locked; nothing was changed"
            raise obstacles.refusal(root, error, why) from error
        yield descriptor
    finally:
        os.close(descriptor)


class _Interrupted(BaseException):
    """A signal came, and its own handler did not end the program or raise."""


@contextlib.contextmanager
def _deferred() -> Iterator[Callable[[], None]]:
    """Hold back SIGINT, SIGTERM and SIGHUP, so that nothing stops between two steps.

    What it gives raises ``_Interrupted`` if one came: to be called at a point where everything can be
    undone. The signal itself is delivered after that, to whatever handled it before.
    """
    caught: list[int] = []
    before = []

    def check() -> None:
        if caught:
            raise _Interrupted

    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler is None or handler is signal.SIG_IGN:
            continue
        try:
            signal.signal(number, lambda number, _frame: caught.append(number))
        except ValueError:  # signals reach the main thread only, and this is another
            break
        before.append((number, handler))
    try:
        yield check
    finally:
        for number, handler in before:
            signal.signal(number, handler)
        for came in caught:
            signal.raise_signal(came)


def _run(opened: OpenFolders, drafted: Draft, source_date_epoch: int | None) -> tuple[str, ...]:
    progress = _Progress()
    try:
        with _deferred() as check:
            try:
                with opened.naming():
                    _steps(opened, drafted, source_date_epoch, progress, check)
            except BaseException as error:
                if not progress.committed:
                    _undo(opened, drafted, progress, error)
                if not isinstance(error, OSError):
                    raise
                if not progress.committed:
                    why = "everything was put back"
                    raise obstacles.refusal(opened.root, error, why) from error
                note = f"{error}: {progress.work} could not be removed; the next command removes it"
                progress.notes.append(note)
    except _Interrupted:
        why = f"{opened.root}: interrupted by a signal; everything was put back"
        raise Refused(why, hint="run the command again") from None
    finally:
        opened.close()
    return tuple(progress.notes)


class _Progress:
    """How far a transaction got: what has to be undone."""

    def __init__(self) -> None:
        self.work: str | None = None
        self.journalled = False
        self.begun = 0
        self.committed = False
        self.notes: list[str] = []


def _steps(
    opened: OpenFolders,
    drafted: Draft,
    source_date_epoch: int | None,
    progress: _Progress,
    check: Callable[[], None],
) -> None:
    ops = drafted.ops
    mtime_ns = None if source_date_epoch is None else source_date_epoch * 1_000_000_000
    check()
    opened.allow([*drafted.journal.paths(), *(op.source for op in ops if op.source is not None)])
    progress.work = work = journal.open_work(opened)
    for op in ops:
        if op.step.backup is not None:
            site.preserve(_place(opened, op), opened.at(f"{work}/{op.step.backup}"))
    journal.save(opened, work, drafted.journal)
    progress.journalled = True

    for new_folder in drafted.journal.made:
        parent = os.stat(opened.folder(opened.site.absolute(os.path.dirname(new_folder))))
        opened.make_folder(opened.site.absolute(new_folder), owner=(parent.st_uid, parent.st_gid))
    for op in ops:
        check()
        _stage(opened, op, mtime_ns)
    # What a power cut may take: ext4, XFS and btrfs keep changes of folders (names, links, removals)
    # in the order they were made, whatever part of them is on the disk; the content of a file may
    # come later than its name, unless it was synced; two file systems know no common order. So
    # every new content is synced before it gets a name that counts: the journal in `save`, the
    # staged files here. The renames need no sync among each other, as all of them are before the
    # removal of the journal; but those on another file system than the journal's have to be on the
    # disk when it goes.
    site.sync([opened.at(op.step.temp) for op in ops if op.data is not None])
    for op in ops:
        check()
        _same_as_drafted(opened, op)
        progress.begun += 1
        _swap(opened, op)
    for gone in reversed(drafted.journal.gone):
        opened.remove_folder(opened.site.absolute(gone.path))
    _settle_folders(opened, drafted, mtime_ns)
    folders = [one.path for one in drafted.journal.kept]
    putting_back.sync_folders(opened, [*folders, *drafted.journal.made])
    paths = (op.step.path for op in ops)
    sources = [path for path in paths if path.endswith(".py") and not path.startswith(("/", "."))]
    progress.notes += bytecode.forget(opened.root, sources)
    check()
    journal.finish(opened, work)
    progress.committed = True
    journal.sweep(opened, work)


def _place(opened: OpenFolders, op: Op) -> str:
    return opened.at(opened.site.absolute(op.step.path))


def _stage(opened: OpenFolders, op: Op, mtime_ns: int | None) -> None:
    temp = opened.at(op.step.temp)
    if op.source is not None:
        site.preserve(opened.at(op.source), temp, private=op.private)
    elif op.data is not None and op.like is not None:
        of = None if op.info is None else _place(opened, op)
        site.write(temp, op.data, op.like, mode=op.mode, mtime_ns=mtime_ns, attributes_of=of)


def _same_as_drafted(opened: OpenFolders, op: Op) -> None:
    """Look once more: somebody who knows no locks may have written between draft and now."""
    if _identity(site.status(_place(opened, op))) != _identity(op.info):
        why = f"{op.step.path} was changed by another program just now; everything was put back"
        raise Refused(why, hint="wait for that program, then run the command again")


def _identity(info: os.stat_result | None) -> tuple[int, ...] | None:
    return None if info is None else (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)


def _swap(opened: OpenFolders, op: Op) -> None:
    path, temp = _place(opened, op), opened.at(op.step.temp)
    if op.removes:
        os.unlink(path)
        return
    os.replace(temp, path)
    if op.source is not None and site.status(temp) is not None:
        # Both names were the same file already, and then rename does nothing.
        os.unlink(temp)


def _settle_folders(opened: OpenFolders, drafted: Draft, mtime_ns: int | None) -> None:
    for new_folder in drafted.journal.made:
        if mtime_ns is not None:
            os.utime(opened.folder(opened.site.absolute(new_folder)), ns=(mtime_ns, mtime_ns))
    for folder in drafted.journal.kept:
        putting_back.give_mtime(opened.folder(opened.site.absolute(folder.path)), folder.mtime_ns)


def _undo(opened: OpenFolders, drafted: Draft, progress: _Progress, cause: BaseException) -> None:
    """Put everything back. ``NotRestored`` if that fails too: the next command tries again."""
    what = f"the transaction failed ({cause}) and"
    with putting_back.undoing(opened, what):
        work = progress.work or journal.find(opened.root)
        if work is None:
            return
        if progress.journalled:
            putting_back.put_back(opened, work, drafted.journal, reached=progress.begun, what=what)
            journal.finish(opened, work)
        journal.sweep(opened, work)
