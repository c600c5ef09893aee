"""From a transition to every single step of it, in order. Looks at the tree, writes nothing.

Adds to what the caller wants changed whatever follows from it: originals, the RECORD of the
distribution, stale bytecode, the sources of the mods, the receipt, folders that come and go.
Everything that could be refused is refused here, before the first write.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

from vllm_mods import bytecode, folders, journal, receipt, record, site
from vllm_mods.draft import NEW_FILE_MODE, Draft, Op
from vllm_mods.errors import Refused
from vllm_mods.receipt import ReceiptFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.draft import Transition, Write
    from vllm_mods.receipt import Receipt
    from vllm_mods.site import Look, Site


def draft(
    where: Site, there: Receipt | None, transition: Transition, *, break_links: bool = False
) -> Draft:
    """Draft a transition of the tree at ``where``, whose receipt is ``there``.

    Raises ``Refused`` for a file that is not as expected, is reached through a link, has
    other names (unless ``break_links``), is read-only or lies outside.
    """
    drafter = _Drafter(where, there, transition, break_links=break_links)
    site.check_writable(receipt.STATE, None, drafter.look)
    drafter.targets()
    drafter.records()
    drafter.state()
    return drafter.finish()


class _Drafter:
    """One draft in the making."""

    def __init__(
        self, where: Site, there: Receipt | None, transition: Transition, *, break_links: bool
    ) -> None:
        self.site = where
        self.transition = transition
        self.break_links = break_links
        self.look: Look = site.Look(site=where, folders={})
        self.old = {file.path: file for file in there.files} if there is not None else {}
        self.there = there
        self.net = dict(self.old)
        self.ops: dict[str, Op] = {}
        self.folders = folders.Folders()
        self.digests: dict[str, str | None] = {}
        self.root_info = os.stat(where.root)

    # --- what the caller asked for ------------------------------------------

    def targets(self) -> None:
        for write in self.transition.writes:
            site.check_target(write.path)
            info = self.look.file(write.path)
            found = self.digest(write.path, info)
            if found != write.expected:
                raise _changed(self.site, write.path, write.expected, found)
            missing = self.look.missing(write.path)
            site.check_writable(write.path, info, self.look, break_links=self.break_links)
            for folder in missing:
                if folder.split("/", 1)[0] != receipt.STATE:
                    self.net.setdefault(
                        folder,
                        ReceiptFile(path=folder, before=None, after=None, kind=receipt.FOLDER),
                    )
            if write.restore:
                self.restore(write.path)
            else:
                self.change(write, info, found)
            if write.path.endswith(".py"):
                self.compiled(write)

    def change(self, write: Write, info: os.stat_result | None, found: str | None) -> None:
        """Write or delete one file, and keep its original if this is the first touch."""
        path = write.path
        known = self.old.get(path)
        if known is None and info is not None:
            self.keep(path, info)
        if write.data is None:
            self.remove(path, info)
            after, mode, size = None, None, None
        else:
            after = hashlib.sha256(write.data).hexdigest()
            kept = NEW_FILE_MODE if info is None else stat.S_IMODE(info.st_mode)
            mode, size = kept if write.mode is None else write.mode, len(write.data)
            self.put(path, write.data, info, mode)
        before = found if known is None else known.before
        if before is None and after is None:
            self.net.pop(path, None)
        else:
            self.net[path] = ReceiptFile(
                path=path, before=before, after=after, mode=mode, size=size
            )

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
        if self.digest(original, saved) != known.before or saved is None:
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
                source=self.site.absolute(original),
                private=saved.st_nlink > 1,
            )
        )
        self.remove(original, saved)

    def compiled(self, write: Write) -> None:
        """Remove what interpreters made of the source; bring back what they had made before."""
        first = write.path not in self.old
        if write.restore:
            for path in [path for path in self.old if bytecode.is_of(path, write.path)]:
                self.restore(path)
        for path in bytecode.of(self.look, write.path):
            if path in self.ops:
                continue
            info = self.look.file(path)
            if info is None:
                continue
            site.check_writable(path, None, self.look)
            if first:
                self.keep(path, info)
                digest = self.digest(path, info)
                self.net[path] = ReceiptFile(
                    path=path, before=digest, after=None, kind=receipt.BYTECODE
                )
            self.remove(path, info)
        self.folders.maybe_gone.add(bytecode.cache(write.path))

    # --- RECORD -------------------------------------------------------------

    def records(self) -> None:
        """Make each RECORD true that lists a touched file, starting from its untouched form."""
        from vllm_mods.trees import names  # noqa: PLC0415  (a revert of everything does without)

        touched = {
            path: None if file.after is None else (file.after, file.size or 0)
            for path, file in self.net.items()
            if file.kind == receipt.FILE and not path.startswith(("/", f"{receipt.STATE}/"))
        }
        owners = {file.path for file in self.old.values() if file.kind == receipt.RECORD}
        listed: dict[str, str | None] = {}
        if touched:
            entries = os.listdir(self.site.root)
            folders = [entry for entry in entries if entry.endswith(".dist-info")]
            bases: dict[str, bytes] = {}
            for path in touched:
                is_new = self.net[path].before is None
                listed[path] = self.owner(path, names.owners_first(folders, path), bases, is_new)
            owners |= {owner for owner in listed.values() if owner is not None}
        for owner in sorted(owners):
            self.record(owner, {path: touched[path] for path in touched if listed[path] == owner})

    def owner(
        self,
        path: str,
        folders: list[str],
        bases: dict[str, bytes],
        is_new: bool,  # noqa: FBT001
    ) -> str | None:
        """Find the RECORD that lists a file or, for a new one, the package that it goes into."""
        for folder in folders:
            owner = f"{folder}/RECORD"
            if owner not in bases:
                bases[owner] = self.untouched(owner)
            if record.takes(bases[owner], path) if is_new else record.lists(bases[owner], path):
                return owner
        return None

    def record(self, owner: str, files: dict[str, tuple[str, int] | None]) -> None:
        info = self.look.file(owner)
        current = self.digest(owner, info)
        known = self.old.get(owner)
        base = self.untouched(owner)
        data = record.edit(base, files)
        after = hashlib.sha256(data).hexdigest()
        if known is not None and current not in {known.before, known.after}:
            if info is None:
                raise Refused(
                    f"{owner} is gone: the distribution was upgraded or removed since the mods "
                    "went in; nothing was changed",
                    hint=f"the receipt is out of date: rm -r {self.site.absolute(receipt.STATE)}",
                )
            if not self.transition.discard_edits:
                raise _changed(self.site, owner, known.after, current)
        if data == base:
            if known is not None:
                self.writable(owner, info)
                self.restore(owner)
            return
        if after == current:
            return
        self.writable(owner, info)
        if known is None and info is not None:
            self.keep(owner, info)
        mode = stat.S_IMODE(info.st_mode) if info is not None else NEW_FILE_MODE
        self.put(owner, data, info, mode)
        self.net[owner] = ReceiptFile(
            path=owner,
            before=current if known is None else known.before,
            after=after,
            kind=receipt.RECORD,
            mode=mode,
            size=len(data),
        )

    def untouched(self, path: str) -> bytes:
        known = self.old.get(path)
        if known is not None and known.before is not None:
            data = site.read(self.site.absolute(receipt.original(path)))
            if data is not None and hashlib.sha256(data).hexdigest() == known.before:
                return data
            raise Refused(
                f"{path}: its original is missing or damaged; nothing was changed",
                hint=f"vllm-mods verify --target {self.site.root}",
            )
        if self.look.file(path) is None:
            return b""
        return site.read(self.site.absolute(path)) or b""

    # --- our own files --------------------------------------------------------

    def state(self) -> None:
        """Bring the receipt and the mods' sources up to date."""
        mods = self.transition.mods
        names = {mod.name for mod in mods}
        given: dict[str, dict[str, bytes]] = {}
        for path, data in self.transition.sources:
            given.setdefault(path.split("/", 1)[0], {})[f"{receipt.MODS}/{path}"] = data
        for path in self.below(receipt.MODS):
            mod = path[len(receipt.MODS) + 1 :].split("/", 1)[0]
            if mod not in names or (mod in given and path not in given[mod]):
                self.remove(path, self.look.file(path))
        for mod in names & given.keys():
            for path, data in given[mod].items():
                self.own(path, data)
        if not mods:
            self.leftovers()
            self.remove(receipt.RECEIPT, self.look.file(receipt.RECEIPT))

    def leftovers(self) -> None:
        """Check that nothing stays changed when no mod is in, and clear what is ours."""
        left = [file.path for file in self.net.values() if file.kind != receipt.FOLDER]
        if left:
            raise ValueError(f"no mod would be in, and yet these stay changed: {left}")
        for path in self.below(receipt.ORIGINALS):
            if path not in self.ops:
                self.remove(path, self.look.file(path))
        self.folders.maybe_gone.add(receipt.TEMPLATES)

    def below(self, folder: str) -> Iterator[str]:
        """Yield the files of our own below a folder, which may itself become empty."""
        if self.look.parent(f"{folder}/x")[0] is None:
            return
        self.folders.maybe_gone.add(folder)
        for name in sorted(os.listdir(self.site.absolute(folder))):
            path = f"{folder}/{name}"
            info = site.status(self.site.absolute(path))
            if info is not None and stat.S_ISDIR(info.st_mode):
                yield from self.below(path)
            else:
                yield path

    def own(self, path: str, data: bytes) -> None:
        info = self.look.file(path)
        if self.digest(path, info) != hashlib.sha256(data).hexdigest():
            self.look.missing(path)
            self.put(path, data, info, NEW_FILE_MODE)

    # --- the parts that everything is made of ---------------------------------

    def digest(self, path: str, info: os.stat_result | None) -> str | None:
        if info is None:
            return None
        if path not in self.digests:
            self.digests[path] = site.digest(self.site.absolute(path))
        return self.digests[path]

    def writable(self, path: str, info: os.stat_result | None) -> None:
        site.check_writable(path, info, self.look, break_links=self.break_links)

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
        self.look.missing(path)
        like = info
        if like is None:
            folder = os.path.dirname(path)
            while (parent := self.look.folders.get(self.site.absolute(folder))) is None and folder:
                folder = os.path.dirname(folder)
            like = self.root_info if parent is None else parent
        self.add(
            Op(
                step=self.step(path, info, hashlib.sha256(data).hexdigest()),
                info=info,
                data=data,
                like=like,
                mode=mode,
                attributes_of=None if info is None else self.site.absolute(path),
            )
        )

    def remove(self, path: str, info: os.stat_result | None) -> None:
        if info is not None:
            self.add(Op(step=self.step(path, info, None), info=info))
            self.folders.maybe_gone.update(folders.parents(path))

    def step(self, path: str, info: os.stat_result | None, after: str | None) -> journal.Step:
        absolute = self.site.absolute(path)
        folder, name = os.path.split(absolute)
        # 200 bytes of the name: the whole may be as long as a file system allows.
        stem = os.fsencode(name)[:200].decode("utf-8", "surrogateescape")
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
        path = op.step.path
        if path in self.ops:
            raise ValueError(f"{path} is to be written twice")
        self.ops[path] = op
        if not op.removes:
            for folder in self.look.missing(path):
                self.folders.made[folder] = None

    def finish(self) -> Draft:
        gone = folders.gone(
            self.look, self.old, self.ops, self.folders, clear=not self.transition.mods
        )
        for folder in gone.missing:
            self.net.pop(folder, None)
        if self.transition.mods:
            self.new_receipt()
            final: Receipt | None = self.final_receipt()
        else:
            final = None
        kept = folders.kept(self.look, self.ops, self.folders.made, gone.gone)
        # The receipt is the last file: whoever sees it sees the rest.
        ops = sorted(self.ops.values(), key=lambda op: op.step.path == receipt.RECEIPT)
        return Draft(
            ops=tuple(ops),
            journal=journal.Journal(
                steps=tuple(op.step for op in ops),
                kept=kept,
                made=tuple(self.folders.made),
                gone=gone.gone,
            ),
            owner=(self.root_info.st_uid, self.root_info.st_gid),
            receipt=final,
            notes=gone.notes,
        )

    def final_receipt(self) -> Receipt:
        absolute = any(path.startswith("/") for path in self.net)
        workspace = self.site.workspaces[0] if absolute else None
        return receipt.Receipt(
            vllm=self.transition.vllm,
            mods=self.transition.mods,
            files=tuple(sorted(self.net.values(), key=lambda file: file.path)),
            workspace=workspace,
        )

    def new_receipt(self) -> None:
        self.own(receipt.RECEIPT, receipt.dump(self.final_receipt()))


def _changed(where: Site, path: str, expected: str | None, found: str | None) -> Refused:
    if expected is None:
        what = "is there already"
    elif found is None:
        what = "is gone"
    else:
        what = f"was changed: its sha256 is {found[:12]}…, and {expected[:12]}… was expected"
    return Refused(
        f"{path} {what}; nothing was changed",
        hint=f"vllm-mods verify --target {where.root}",
    )
