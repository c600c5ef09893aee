"""What is to happen to a tree: as the caller wants it, and as every single step of it. Pure data."""

from __future__ import annotations

import os
from typing import NamedTuple

from vllm_mods.formats.receipt import Receipt, ReceiptMod
from vllm_mods.site.journal_text import Journal, Step

NEW_FILE_MODE = 0o644


class Write(NamedTuple):
    """One file to be changed.

    ``expected`` is the sha256 it must have now (None: it must not be there). ``data`` is the
    new content, None to delete it; ``mode`` permission bits, None to keep those it has.
    ``restore`` brings back the untouched form with all its metadata, whatever ``data`` says.
    """

    path: str
    expected: str | None
    data: bytes | None = None
    mode: int | None = None
    restore: bool = False


class Transition(NamedTuple):
    """What a tree is to become.

    ``before`` are the mods that were in when this was planned, ``mods`` all that are in afterwards,
    ``()`` for an untouched tree; the receipt's other parts follow. ``sources`` are mods by name, each packed by ``keep``; those of mods that
    stay need not be given again.
    ``discard_edits`` overwrites a RECORD that somebody changed since. ``undone`` are paths of the receipt
    that an installer has put its own files at: they count as never touched. ``aside`` is where a copy of our
    folder goes, which says what was in before that.
    """

    writes: tuple[Write, ...]
    before: tuple[ReceiptMod, ...]
    mods: tuple[ReceiptMod, ...]
    vllm: str | None
    sources: tuple[tuple[str, bytes], ...] = ()
    discard_edits: bool = False
    undone: frozenset[str] = frozenset()
    aside: str | None = None


class Op(NamedTuple):
    """One file to be written (``data``, or the file ``source`` preserved) or, with neither, removed.

    With both it is ``data``, and all else as ``source`` has it. ``like`` is whose owner it gets, and whose mode if ``mode`` is None; ``attributes_of`` whose
    extended attributes. ``private`` makes ``source`` be copied rather than linked.
    """

    step: Step
    info: os.stat_result | None
    data: bytes | None = None
    source: str | None = None
    private: bool = False
    like: os.stat_result | None = None
    mode: int | None = None
    attributes_of: str | None = None

    @property
    def removes(self) -> bool:
        """Whether the file is to be gone."""
        return self.data is None and self.source is None


class Draft(NamedTuple):
    """All steps, the journal that undoes them, and the receipt that is there after them."""

    ops: tuple[Op, ...]
    journal: Journal
    receipt: Receipt | None
    notes: tuple[str, ...]
