"""Does a tree still hold what its receipt says? Reads only.

Who changed a file can't be known, and no finding pretends otherwise.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from vllm_mods import bytecode, receipt, record, site
from vllm_mods.digest import sha256
from vllm_mods.errors import VllmModsError
from vllm_mods.model import Finding, Level
from vllm_mods.state import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.receipt import Receipt, ReceiptFile
    from vllm_mods.state import State

_LEFTOVERS = (".rej", ".orig")


def verify(root: str) -> tuple[Finding, ...]:
    """Return everything in which a tree differs from its receipt; ``()`` if nothing does.

    Codes: ``unfinished``, ``missing``, ``changed-since``, ``mode-changed``, ``unreadable``,
    ``original-missing``, ``original-damaged`` (a revert would fail), ``stale-bytecode`` (old code
    would run), ``record-disagrees``; and as a note ``leftover`` (a ``.rej`` or ``.orig`` of
    ``patch``). A tree without mods has none of them. Raises ``Refused`` for a broken receipt.
    """
    there = read_state(root)
    if there is None:
        return ()
    return tuple(_findings(there))


def _findings(there: State) -> Iterator[Finding]:
    if there.unfinished is not None:
        yield Finding(
            code="unfinished",
            message="a transaction was interrupted; the next apply or revert undoes it first",
            path=os.path.basename(there.unfinished),
        )
    if there.receipt is None:
        return
    workspace = there.receipt.workspace
    where = site.Site(root=there.root, workspaces=(workspace,) if workspace else ())
    look = site.Look(site=where, folders={})
    for file in there.receipt.files:
        if file.kind == receipt.FOLDER:
            continue
        try:
            yield from _original(look, file)
            if file.kind != receipt.BYTECODE:
                yield from _file(look, file)
            if file.path.endswith(".py"):
                yield from _bytecode(look, file.path, there.receipt)
            yield from _leftovers(where, file.path)
        except VllmModsError as error:
            yield Finding(
                code="unreadable", message=error.message.partition("; nothing")[0], path=file.path
            )
        except OSError as error:
            yield Finding(code="unreadable", message=str(error), path=file.path)
    yield from _records(look, there.receipt)


def _original(look: site.Look, file: ReceiptFile) -> Iterator[Finding]:
    if file.before is None:
        return
    kept = receipt.original(file.path)
    found = None if look.file(kept) is None else site.digest(look.site.absolute(kept))
    if found is None:
        yield Finding(
            code="original-missing",
            message=f"its original {kept} is gone: a revert would fail",
            path=file.path,
        )
    elif found != file.before:
        yield Finding(
            code="original-damaged",
            message=f"its original {kept} is not what it was: a revert would fail",
            path=file.path,
        )


def _file(look: site.Look, file: ReceiptFile) -> Iterator[Finding]:
    info = look.file(file.path)
    found = None if info is None else site.digest(look.site.absolute(file.path))
    if found == file.after:
        if info is not None and file.mode is not None and stat.S_IMODE(info.st_mode) != file.mode:
            yield Finding(
                code="mode-changed",
                message=f"its mode is {stat.S_IMODE(info.st_mode):04o} and was {file.mode:04o} "
                "after the mods went in",
                path=file.path,
            )
        return
    if found is None:
        what = "is gone"
    elif file.after is None:
        what = "was removed by a mod and is there again"
    elif found == file.before:
        what = "is as it was before the mods went in: something put the untouched file back"
    else:
        what = "was changed after the mods went in; by whom, nothing here can tell"
    yield Finding(
        code="missing" if found is None else "changed-since", message=what, path=file.path
    )


def _bytecode(look: site.Look, path: str, there: Receipt) -> Iterator[Finding]:
    """Find bytecode that Python would run in place of the patched source."""
    removed = {file.path: file.before for file in there.files if file.kind == receipt.BYTECODE}
    source = site.read(look.site.absolute(path))
    for compiled in bytecode.of(look, path):
        if look.file(compiled) is None:
            continue
        name = os.path.basename(compiled)
        if site.digest(look.site.absolute(compiled)) == removed.get(compiled):
            yield Finding(
                code="stale-bytecode",
                message=f"{name} is what was compiled from the untouched source, and was removed: "
                "something put it back, and Python may run it in place of the patched code",
                path=compiled,
            )
        elif _unchecked(site.read(look.site.absolute(compiled)) or b"", source):
            yield Finding(
                code="stale-bytecode",
                message=f"{name} was compiled from another source and tells Python not to check: "
                "it runs in place of the patched code",
                path=compiled,
            )


def _unchecked(compiled: bytes, source: bytes | None) -> bool:
    """Tell whether bytecode is of another source and marked as not to be checked (PEP 552)."""
    if source is None or len(compiled) < 16 or int.from_bytes(compiled[4:8], "little") != 0b01:
        return False
    from _imp import source_hash  # noqa: PLC0415  (importlib's own fixes the magic number)

    # The key is the "raw magic number" of the interpreter that wrote it, CR LF included.
    return source_hash(int.from_bytes(compiled[:4], "little"), source) != compiled[8:16]


def _leftovers(where: site.Site, path: str) -> Iterator[Finding]:
    for ending in _LEFTOVERS:
        if os.path.lexists(where.absolute(path) + ending):
            yield Finding(
                code="leftover",
                message=f"{path}{ending} lies beside a patched file: left by `patch`, not by us",
                path=f"{path}{ending}",
                level=Level.NOTE,
            )


def _records(look: site.Look, there: Receipt) -> Iterator[Finding]:
    """Compare each touched file with its row; a changed RECORD itself is found as any file is."""
    for owner in there.files:
        if owner.kind != receipt.RECORD:
            continue
        try:
            rows = _content(look, owner.path) or b""
        except (VllmModsError, OSError):
            continue
        for file in there.files:
            if file.kind != receipt.FILE or file.path.startswith("/"):
                continue
            try:
                data = _content(look, file.path)
            except (VllmModsError, OSError):
                continue  # it has its finding already
            if data is None:
                agrees = None if not record.lists(rows, file.path) else False
            else:
                agrees = record.agrees(rows, file.path, sha256(data), len(data))
            if agrees is False:
                yield Finding(
                    code="record-disagrees",
                    message=f"{owner.path} states another hash than the file has",
                    path=file.path,
                )


def _content(look: site.Look, path: str) -> bytes | None:
    return None if look.file(path) is None else site.read(look.site.absolute(path))
