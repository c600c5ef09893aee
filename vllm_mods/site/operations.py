"""What is to happen to a tree: as the caller wants it, and as every single step of it. Pure data."""

from __future__ import annotations

import os
from typing import NamedTuple

from vllm_mods.base.model import FileChange
from vllm_mods.formats.receipt import Receipt, ReceiptMod
from vllm_mods.site.journal_text import Journal, Step

NEW_FILE_MODE = 0o644


class Transition(NamedTuple):
    """What a tree is to become.

    ``changes`` start from what the tree has now; of those whose path is in ``restored`` the untouched form comes back with
    all its metadata, whatever they say of it. ``before`` are the mods that were in when this was planned, ``mods`` all that are in afterwards,
    ``()`` for an untouched tree; the receipt's other parts follow. ``sources`` are mods by name, each packed by ``keep``; those of mods that
    stay need not be given again.
    ``discard_edits`` overwrites a RECORD that somebody changed since. ``undone`` are paths of the receipt
    that an installer has put its own files at: they count as never touched. ``aside`` is where a copy of our
    folder goes, which says what was in before that.
    """

    changes: tuple[FileChange, ...]
    before: tuple[ReceiptMod, ...]
    mods: tuple[ReceiptMod, ...]
    vllm: str | None
    restored: frozenset[str] = frozenset()
    sources: tuple[tuple[str, bytes], ...] = ()
    discard_edits: bool = False
    undone: frozenset[str] = frozenset()
    aside: str | None = None


class Op(NamedTuple):
    """One file to be written (``data``, or the file ``source`` preserved) or, with neither, removed.

    ``like`` is whose owner it gets, and whose mode if ``mode`` is None; ``attributes_of`` whose
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
