"""Does a tree still hold what its receipt says? Reads only.

Who changed a file can't be known, and no finding pretends otherwise. A folder and an image are
looked at by the same rules: a ``ReceiptPlace`` is all that they need.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.formats import receipt, record
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.site import bytecode, site, undone
from vllm_mods.site.state_folder import State
from vllm_mods.trees.folder import FolderTree


class ReceiptPlace(Protocol):
    """Files by path, as a receipt writes it: from the site root, or absolute in a workspace.

    Each method raises ``VllmModsError`` or ``OSError`` for what cannot be looked at.
    """

    def mode(self, path: str) -> int | None:
        """Return the permission bits of a regular file, None if there is none."""

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a regular file, None if there is none."""

    def names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder, none if it is not there."""


def undone_in(state: State) -> undone.Undone:
    """Return what an installer has undone of the mods in a folder."""
    if state.receipt is None:
        return undone.Undone()
    return undone.look(state.receipt, FolderTree(state.root, workspace=state.receipt.workspace))


def findings(state: State, gone: Collection[str]) -> tuple[Finding, ...]:
    """Return everything in which a tree differs from what ``state`` says of it.

    Codes: ``unfinished``, and those of ``compare``. A tree without mods has none of them. ``gone`` are
    the paths that an installer has undone.
    """
    problems: tuple[Finding, ...] = ()
    if state.unfinished is not None:
        message = "an apply or revert was interrupted; the next apply or revert restores the tree"
        problems = (Finding(FindingCode.UNFINISHED, message, os.path.basename(state.unfinished)),)
    if state.receipt is None:
        return problems
    workspace = state.receipt.workspace
    where = site.Site(root=state.root, workspaces=(workspace,) if workspace else ())
    return (*problems, *compare(state.receipt, site.Look(where, {}), gone))


def compare(
    applied: Receipt, place: ReceiptPlace, gone: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return everything in which a place differs from its receipt; ``gone`` is what ``undone.look`` found.

    Codes: ``missing``, ``changed-since``, ``mode-changed``, ``unreadable``, ``original-missing``,
    ``original-damaged`` (a revert would fail), ``stale-bytecode`` (old code would run),
    ``record-disagrees``; and as a note ``leftover`` (a ``.rej`` or ``.orig`` of ``patch``).
    """
    return (*_of_files(applied, place, gone), *_of_records(applied, place))


def _of_files(applied: Receipt, place: ReceiptPlace, gone: Collection[str]) -> Iterator[Finding]:
    for file in applied.files:
        if file.kind == receipt.FOLDER or (file.kind == receipt.BYTECODE and file.path in gone):
            continue
        try:
            if file.path in gone:
                yield _undone(place, file)
                continue
            yield from _original(place, file)
            if file.kind != receipt.BYTECODE:
                yield from _file(place, file)
            if file.path.endswith(".py"):
                yield from _bytecode(place, file.path, applied)
            yield from _leftovers(place, file.path)
        except (VllmModsError, OSError) as error:
            yield Finding(FindingCode.UNREADABLE, str(error).partition("; nothing")[0], file.path)


def _original(place: ReceiptPlace, file: ReceiptFile) -> Iterator[Finding]:
    if file.before is None:
        return
    saved = receipt.original(file.path)
    if place.read(saved) is None:
        message = f"its stored original {saved} is gone: a revert would fail"
        yield Finding(FindingCode.ORIGINAL_MISSING, message, file.path)
    elif receipt.untouched(file, place.read) is None:
        message = f"its stored original {saved} is damaged: a revert would fail"
        yield Finding(FindingCode.ORIGINAL_DAMAGED, message, file.path)


def _file(place: ReceiptPlace, file: ReceiptFile) -> Iterator[Finding]:
    mode = place.mode(file.path)
    digest = None if mode is None else sha256(place.read(file.path))
    if digest == file.after:
        if mode is not None and file.mode is not None and mode != file.mode:
            message = f"its mode is {mode:04o}, and was {file.mode:04o} after the mods were applied"
            yield Finding(FindingCode.MODE_CHANGED, message, file.path)
        return
    if digest is None:
        yield Finding(FindingCode.MISSING, "is gone", file.path)
        return
    if file.after is None:
        what = "was removed by a mod and has come back"
    elif digest == file.before:
        what = "is the original file again, but other files of the same mods are patched"
    else:
        what = "was edited after the mods were applied"
    yield Finding(FindingCode.CHANGED_SINCE, what, file.path)


def _undone(place: ReceiptPlace, file: ReceiptFile) -> Finding:
    """Say what lies where a mod's file was: the originals are of no use for it, its bytecode is its own."""
    digest = sha256(place.read(file.path))
    if digest is None:
        what = "is gone: an installer removed it after the mods had created it"
        return Finding(FindingCode.MISSING, what, file.path)
    what = "belongs to another installation, made after the mods were applied"
    if digest == file.before:
        what = "is the original file again: something restored it"
    return Finding(FindingCode.CHANGED_SINCE, what, file.path)


def _bytecode(place: ReceiptPlace, path: str, applied: Receipt) -> Iterator[Finding]:
    removed = {file.path: file.before for file in applied.files if file.kind == receipt.BYTECODE}
    source = place.read(path)
    folder = bytecode.cache(path)
    for name in sorted(place.names(folder)):
        compiled = f"{folder}/{name}"
        data = place.read(compiled) if bytecode.is_of(compiled, path) else None
        if data is None:
            continue
        if sha256(data) == removed.get(compiled):
            what = "was removed and is back, compiled from the original source, so Python may run that old code"
        elif _unchecked(data, source):
            what = "was compiled from another source and marked unchecked, so Python runs that code"
        else:
            continue
        yield Finding(FindingCode.STALE_BYTECODE, f"{name} {what}", compiled)


def _unchecked(compiled: bytes, source: bytes | None) -> bool:
    """Tell whether bytecode is of another source and marked as not to be checked (PEP 552)."""
    if source is None or len(compiled) < 16 or int.from_bytes(compiled[4:8], "little") != 0b01:
        return False
    from _imp import source_hash  # noqa: PLC0415  (importlib's own fixes the magic number)

    # The key is the "raw magic number" of the interpreter that wrote it, CR LF included.
    return source_hash(int.from_bytes(compiled[:4], "little"), source) != compiled[8:16]


def _leftovers(place: ReceiptPlace, path: str) -> Iterator[Finding]:
    for left in (f"{path}.rej", f"{path}.orig"):
        if place.mode(left) is not None:
            message = f"{left} is beside a patched file; `patch` left it there, not vllm-mods"
            yield Finding(FindingCode.LEFTOVER, message, left, level=Level.NOTE)


def _of_records(applied: Receipt, place: ReceiptPlace) -> Iterator[Finding]:
    """Compare each touched file with its row; a changed RECORD itself is found as any file is."""
    for owner in applied.files:
        if owner.kind != receipt.RECORD:
            continue
        try:
            rows = place.read(owner.path)
        except (VllmModsError, OSError):
            continue
        if rows is None:
            continue
        for file in applied.files:
            if file.kind != receipt.FILE or file.path.startswith("/"):
                continue
            try:
                data = place.read(file.path)
            except (VllmModsError, OSError):
                continue  # it has its finding already
            if data is None:
                disagrees = record.lists(rows, file.path)
            else:
                disagrees = record.agrees(rows, file.path, sha256(data), len(data)) is False
            if disagrees:
                message = f"{owner.path} states a different hash than the file has"
                yield Finding(FindingCode.RECORD_DISAGREES, message, file.path)
