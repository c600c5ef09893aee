"""The steps that a draft collects: one for each file, with what it takes to undo it."""

from __future__ import annotations

import os

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.site import folders, journal, site
from vllm_mods.site.operations import Op
from vllm_mods.site.site import Look, Site


class Steps:
    """Steps on the tree at ``where``, whose receipt is ``there``. Looks, and writes nothing.

    ``old`` has the files of that receipt by path, ``net`` those of the receipt to come.
    """

    def __init__(self, where: Site, there: Receipt | None, *, keep_links: bool) -> None:
        self.site = where
        self.keep_links = keep_links
        self.look: Look = site.Look(site=where, folders={})
        self.old = {file.path: file for file in there.files} if there is not None else {}
        self.there = there
        self.net = dict(self.old)
        self.ops: dict[str, Op] = {}
        self.folders = folders.Folders()
        self.digests: dict[str, str | None] = {}
        self.root_info = os.stat(where.root)

    def digest(self, path: str, info: os.stat_result | None) -> str | None:
        """Return the sha256 of a file that ``look`` has seen, None if it saw none; read once."""
        if info is None:
            return None
        if path not in self.digests:
            self.digests[path] = site.digest(self.site.absolute(path))
        return self.digests[path]

    def writable(self, path: str, info: os.stat_result | None) -> None:
        """Raise ``Refused`` unless the file may be changed, as ``site.check_writable`` does."""
        site.check_writable(path, info, self.look, keep_links=self.keep_links)

    def keep(self, path: str, info: os.stat_result) -> None:
        """Keep the original of a file, under the name that ``receipt.original`` gives it."""
        original = receipt.original(path)
        self.add(
            Op(
                step=self.step(original, self.look.file(original), self.digest(path, info)),
                info=self.look.file(original),
                source=self.site.absolute(path),
                private=info.st_nlink > 1,
            )
        )

    def put(self, path: str, data: bytes, info: os.stat_result | None, mode: int) -> None:
        """Add the step that writes a file; the owner stays, or is that of the folder."""
        self.look.missing(path)
        like = info
        if like is None:
            folder = os.path.dirname(path)
            while (parent := self.look.folders.get(self.site.absolute(folder))) is None and folder:
                folder = os.path.dirname(folder)
            like = self.root_info if parent is None else parent
        self.add(
            Op(
                step=self.step(path, info, sha256(data)),
                info=info,
                data=data,
                like=like,
                mode=mode,
                attributes_of=None if info is None else self.site.absolute(path),
            )
        )

    def remove(self, path: str, info: os.stat_result | None) -> None:
        """Add the step that removes a file, if it is there."""
        if info is not None:
            self.add(Op(step=self.step(path, info, None), info=info))
            self.folders.maybe_gone.update(folders.parents(path))

    def step(self, path: str, info: os.stat_result | None, after: str | None) -> journal.Step:
        """Describe the next step: hashes, and names for the backup and the staged file."""
        absolute = self.site.absolute(path)
        folder, name = os.path.split(absolute)
        # 200 bytes of the name: the whole may be as long as a file system allows.
        stem = os.fsdecode(os.fsencode(name)[:200])
        n = len(self.ops)
        while os.path.lexists(temp := f"{folder}/.{stem}.vllm-mods{n}"):
            n += 1000
        return journal.Step(
            path=path,
            before=self.digest(path, info),
            after=after,
            backup=None if info is None else str(len(self.ops)),
            temp=temp,
        )

    def add(self, op: Op) -> None:
        """Add a step, and the folders that have to be made for it."""
        path = op.step.path
        if path in self.ops:
            raise ValueError(f"{path} is to be written twice")
        self.ops[path] = op
        if not op.removes:
            for folder in self.look.missing(path):
                self.folders.made[folder] = None

    def restore(self, path: str) -> None:
        """Bring one file back to what it was before any mod."""
        known = self.net.pop(path, None)
        if known is None:
            raise ValueError(f"{path} is in no receipt, so there is nothing to restore")
        info = self.look.file(path)
        if known.before is None:
            if info is not None:
                self.remove(path, info)
            return
        original = receipt.original(path)
        saved = self.look.file(original)
        whole = self.digest(original, saved) == known.before
        data = None if whole else self.untouched(known)
        if saved is None or not (whole or data):
            what = "missing" if saved is None else "damaged"
            raise Refused(
                f"{path}: its original {self.site.absolute(original)} is {what}; "
                "nothing was changed",
                hint="reinstall vLLM: pip install --force-reinstall --no-deps "
                f"vllm{'' if self.there is None or not self.there.vllm else '==' + self.there.vllm}",
            )
        self.add(
            Op(
                step=self.step(path, info, known.before),
                info=info,
                data=data,
                source=self.site.absolute(original),
                private=saved.st_nlink > 1,
            )
        )
        self.remove(original, saved)

    def untouched(self, file: ReceiptFile) -> bytes | None:
        """Return a file as it was before any mod, None if its original is missing or damaged."""
        return receipt.untouched(file, lambda path: site.read(self.site.absolute(path)))
