"""Folders that come and go with the files of a transaction, and those that keep their mtime."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import ReceiptFile
from vllm_mods.site import journal
from vllm_mods.site.journal import Folder
from vllm_mods.site.operations import Op
from vllm_mods.site.site import Look


class Folders:
    """Folders to be made, outer ones first, and those that may become empty."""

    def __init__(self) -> None:
        self.made: dict[str, None] = {}
        self.maybe_gone: set[str] = set()


class Gone(NamedTuple):
    """``gone`` folders will be empty and are removed, outer ones first; ``notes`` name the others.

    ``missing`` are those that are not there afterwards, for either reason.
    """

    gone: tuple[Folder, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def parents(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, inner ones first, without the root."""
    folder = os.path.dirname(path)
    while folder and folder != "/":
        yield folder
        folder = os.path.dirname(folder)


def gone(
    look: Look,
    old: Mapping[str, ReceiptFile],
    ops: Mapping[str, Op],
    folders: Folders,
    *,
    clear: bool,
) -> Gone:
    """Find the folders that are ours and will be empty.

    Ours are those in our own folder, and those that the receipt ``old`` says were made for a
    mod, with the bytecode in them. ``clear`` says that no mod will be in.
    """
    made_for_mods = {path for path, file in old.items() if file.kind == receipt.FOLDER}
    ours = {
        folder
        for folder in folders.maybe_gone | made_for_mods | ({receipt.STATE} if clear else set())
        if folder.split("/", 1)[0] == receipt.STATE
        or folder.removesuffix("/__pycache__") in made_for_mods
    }
    removed: dict[str, Folder] = {}
    missing: list[str] = []
    notes: list[str] = []
    stays = {*folders.made, *(path for path, op in ops.items() if not op.removes)}
    leaves = {path for path, op in ops.items() if op.removes}
    for folder in sorted(ours, key=len, reverse=True):  # inner ones first
        info = look.parent(f"{folder}/x")[0]
        if info is None:
            missing.append(folder)
        elif not any(path.startswith(f"{folder}/") for path in stays) and all(
            f"{folder}/{name}" in leaves or f"{folder}/{name}" in removed
            for name in os.listdir(look.site.absolute(folder))
        ):
            removed[folder] = journal.folder(folder, info)
            missing.append(folder)
        elif clear and (folder in old or folder == receipt.STATE):
            notes.append(f"{folder} stays: somebody else has put files into it")
    return Gone(
        gone=tuple(removed[folder] for folder in sorted(removed)),
        missing=tuple(missing),
        notes=tuple(notes),
    )


def kept(
    look: Look, ops: Iterable[str], made: Iterable[str], removed: Iterable[Folder]
) -> tuple[Folder, ...]:
    """Return every folder that stays and changes, as it is now: its mtime is to be put back."""
    without = {folder.path for folder in removed}
    changing = {os.path.dirname(path) for path in (*ops, *made, *without)} - without
    found = []
    for folder in sorted(changing):
        info = look.folders.get(look.site.absolute(folder))
        if info is not None:
            found.append(journal.folder(folder, info))
    return tuple(found)
