"""The steps that a draft collects, for each file and folder, with what it takes to undo them."""

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.site import site
from vllm_mods.site.journal_text import Folder, Journal, Step
from vllm_mods.site.site import Look, Site
from vllm_mods.site.transitions import Transition

NEW_FILE_MODE = 0o644


class Op(NamedTuple):
    """One file to be written (``data``, or the file ``source`` preserved) or, with neither, removed.

    ``info`` is the file that is there; ``like`` is whose owner ``data`` gets. ``private`` makes ``source`` be
    copied rather than linked.
    """

    step: Step
    info: os.stat_result | None
    data: bytes | None = None
    source: str | None = None
    private: bool = False
    like: os.stat_result | None = None
    mode: int | None = None

    @property
    def removes(self) -> bool:
        """Whether the file is to be gone."""
        return self.data is None and self.source is None

    @property
    def rewrites(self) -> bool:
        """Whether the file that is there is only written again, as it is."""
        same = self.info is not None and stat.S_IMODE(self.info.st_mode) == self.mode
        return same and self.step.before == self.step.after


class Draft(NamedTuple):
    """All steps, the journal that undoes them, and the receipt that is there after them."""

    ops: tuple[Op, ...]
    journal: Journal
    receipt: Receipt | None
    notes: tuple[str, ...]


class Steps:
    """Steps of a transition of the tree at ``where``, whose receipt is ``old_receipt``. Looks, and writes nothing.

    ``old`` has the files of that receipt by path, ``net`` those of the receipt to come; ``made`` are
    folders to be made, outer ones first, ``maybe_gone`` those that may become empty.
    """

    def __init__(
        self, where: Site, old_receipt: Receipt | None, transition: Transition, *, keep_links: bool
    ) -> None:
        self.site = where
        self.transition = transition
        self.keep_links = keep_links
        self.look = Look(site=where, folders={})
        self.old = {file.path: file for file in (old_receipt.files if old_receipt else ())}
        self.net = dict(self.old)
        self.ops: dict[str, Op] = {}
        self.made: dict[str, None] = {}
        self.maybe_gone: set[str] = set()
        self.infos: dict[str, os.stat_result | None] = {}
        self.digests: dict[str, str | None] = {}

    def info(self, path: str) -> os.stat_result | None:
        """Return what a file is, None if there is none; looked at once."""
        if path not in self.infos:
            self.infos[path] = self.look.file(path)
        return self.infos[path]

    def digest(self, path: str) -> str | None:
        """Return the sha256 of a file, None if there is none; read once."""
        if self.info(path) is None:
            return None
        if path not in self.digests:
            self.digests[path] = site.digest(self.site.absolute(path))
        return self.digests[path]

    def writable(self, path: str) -> None:
        """Raise ``Refused`` unless the file may be changed, as ``site.check_writable`` does."""
        site.check_writable(path, self.info(path), self.look, keep_links=self.keep_links)

    def touch(
        self, path: str, data: bytes | None, mode: int | None = None, kind: str = receipt.FILE
    ) -> None:
        """Write or delete a file for mods; without ``mode`` it keeps its own.

        Its original is kept at the first touch, and the receipt to come has it.
        """
        known = self.old.get(path)
        info = self.info(path)
        if known is None and info is not None:
            original = receipt.original(path)
            step, place = self.step(original, self.digest(path)), self.site.absolute(path)
            self.add(Op(step, self.info(original), source=place, private=info.st_nlink > 1))
        before = self.digest(path) if known is None else known.before
        if data is not None:
            own = NEW_FILE_MODE if info is None else stat.S_IMODE(info.st_mode)
            mode = own if mode is None else mode
            self.put(path, data, mode)
            self.net[path] = ReceiptFile(path, before, sha256(data), kind, mode, len(data))
            return
        self.remove(path)
        if before is None:
            self.net.pop(path, None)
        else:
            self.net[path] = ReceiptFile(path, before, None, kind)

    def put(self, path: str, data: bytes, mode: int) -> None:
        """Add the step that writes a file; the owner stays, or is that of the folder."""
        self.look.missing(path)
        info = self.info(path)
        like = self.look.above(path)[1] if info is None else info
        self.add(Op(self.step(path, sha256(data)), info, data, like=like, mode=mode))

    def remove(self, path: str) -> None:
        """Add the step that removes a file, if it is there."""
        info = self.info(path)
        if info is not None:
            self.add(Op(self.step(path, None), info))
            self.maybe_gone.update(site.parents(path))

    def step(self, path: str, after: str | None) -> Step:
        """Describe the next step: hashes, and names for the backup and the staged file."""
        folder, name = os.path.split(self.site.absolute(path))
        # 200 bytes of the name: the whole may be as long as a file system allows.
        stem = os.fsdecode(os.fsencode(name)[:200])
        n = len(self.ops)
        while os.path.lexists(temp := f"{folder}/.{stem}.vllm-mods{n}"):
            n += 1000
        backup = None if self.info(path) is None else str(len(self.ops))
        return Step(path, self.digest(path), after, backup, temp)

    def add(self, op: Op) -> None:
        """Add a step, and the folders that have to be made for it."""
        path = op.step.path
        if path in self.ops:
            raise ValueError(f"{path} would be written twice")
        self.ops[path] = op
        if not op.removes:
            self.made.update(dict.fromkeys(self.look.missing(path)))

    def untouched(self, path: str) -> bytes:
        """Return a file as it was before any mod, empty if there was none. Raises ``Refused``."""
        known = self.old.get(path)
        if known is None or known.before is None:
            return self.look.read(path) or b""
        data = receipt.untouched(known, self.look.read)
        if data is None:
            why = f"{path}: its original is missing or damaged; nothing was changed"
            raise Refused(why, hint=f"vllm-mods verify --target {self.site.root}")
        return data

    def restore(self, path: str) -> None:
        """Bring one file back to what it was before any mod."""
        known = self.net.pop(path)
        if known.before is None:
            self.remove(path)
            return
        self.untouched(path)  # raises where its original is of no use
        original = receipt.original(path)
        saved, place = self.info(original), self.site.absolute(original)
        private = saved is not None and saved.st_nlink > 1
        self.add(Op(self.step(path, known.before), self.info(path), source=place, private=private))
        self.remove(original)

    def gone(self) -> tuple[tuple[Folder, ...], list[str]]:
        """Return the folders that are ours and will be empty, outer ones first, and notes on those that stay.

        Ours are those in our own folder, and those that the old receipt says were made for a mod, with
        the bytecode in them. The receipt to come has none that is not there afterwards.
        """
        clear = not self.transition.mods
        made_for_mods = {path for path, file in self.old.items() if file.kind == receipt.FOLDER}
        known = self.maybe_gone | made_for_mods | ({receipt.STATE} if clear else set())
        ours = {path for path in known if path.removesuffix("/__pycache__") in made_for_mods}
        ours |= {path for path in known if path.split("/", 1)[0] == receipt.STATE}
        removed: dict[str, Folder] = {}
        notes: list[str] = []
        stays = {*self.made, *(path for path, op in self.ops.items() if not op.removes)}
        leaves = {path for path, op in self.ops.items() if op.removes}
        for folder in sorted(ours, reverse=True):  # inner ones first
            info = self.look.parent(f"{folder}/x")[0]
            if info is None:
                self.net.pop(folder, None)
            elif not any(path.startswith(f"{folder}/") for path in stays) and all(
                f"{folder}/{name}" in leaves or f"{folder}/{name}" in removed
                for name in os.listdir(self.site.absolute(folder))
            ):
                removed[folder] = Folder.of(folder, info)
                self.net.pop(folder, None)
            elif clear and (folder in self.old or folder == receipt.STATE):
                notes.append(f"{folder} was not removed: it contains files of others")
        return tuple(removed[folder] for folder in sorted(removed)), notes

    def kept(self, removed: Iterable[Folder]) -> tuple[Folder, ...]:
        """Return every folder that stays and changes, as it is now: its mtime is to be put back."""
        without = {folder.path for folder in removed}
        changing = {os.path.dirname(path) for path in (*self.ops, *self.made, *without)} - without
        at = {path: self.site.absolute(path) for path in sorted(changing)}
        infos = ((path, self.look.folders.get(place)) for path, place in at.items())
        return tuple(Folder.of(path, info) for path, info in infos if info is not None)
