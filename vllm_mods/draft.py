"""From a transition to every single step of it, in order. Looks at the tree, writes nothing.

Adds to what the caller wants changed whatever follows from it: originals, the RECORD of the
distribution, stale bytecode, the sources of the mods, the receipt, folders that come and go.
Everything that could be refused is refused here, before the first write.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods import journal, receipt, record, site
from vllm_mods.errors import Refused
from vllm_mods.receipt import ReceiptFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.journal import Folder
    from vllm_mods.receipt import Receipt, ReceiptMod
    from vllm_mods.site import Look, Site

NEW_FILE_MODE = 0o644
# `<stem>.<implementation>-<version>[.opt-N].pyc`; pytest adds a tag with dots of its own.
_TAG = re.compile(r"[A-Za-z_]+-?\d.*\.pyc\Z")


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

    ``mods`` are all mods that are in afterwards, ``()`` for an untouched tree; the receipt's
    other parts follow. ``sources`` are files to keep under ``.vllm-mods/mods``, named from there
    (``<mod>/mod.toml``); those of mods that stay need not be given again.
    ``discard_edits`` overwrites a RECORD that somebody changed since.
    """

    writes: tuple[Write, ...]
    mods: tuple[ReceiptMod, ...]
    vllm: str | None
    sources: tuple[tuple[str, bytes], ...] = ()
    discard_edits: bool = False


class Op(NamedTuple):
    """One file to be written (``data``, or the file ``source`` preserved) or, with neither, removed.

    ``like`` is whose owner it gets, and whose mode if ``mode`` is None; ``attributes_of`` whose
    extended attributes. ``private`` makes ``source`` be copied rather than linked.
    """

    step: journal.Step
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
    """All steps. ``made`` folders get the owner of ``owner``; ``gone`` ones are empty by then."""

    ops: tuple[Op, ...]
    journal: journal.Journal
    owner: tuple[int, int]
    receipt: Receipt | None
    notes: tuple[str, ...]


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


class _Folders:
    """Folders that are made, that change and keep their mtime, and that may become empty."""

    def __init__(self) -> None:
        self.made: dict[str, None] = {}
        self.kept: dict[str, Folder] = {}
        self.maybe_gone: set[str] = set()


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
        self.folders = _Folders()
        self.notes: list[str] = []
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
                self.bytecode(write)

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

    def bytecode(self, write: Write) -> None:
        """Remove what interpreters made of the source; bring back what they had made before."""
        cache = f"{os.path.dirname(write.path)}/__pycache__".lstrip("/")
        stem = os.path.basename(write.path).removesuffix(".py")
        first = write.path not in self.old
        if write.restore:
            for path in [path for path in self.old if _made_from(path, cache, stem)]:
                self.restore(path)
        for path in self.compiled(cache, stem):
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
        self.folders.maybe_gone.add(cache)

    def compiled(self, cache: str, stem: str) -> Iterator[str]:
        if self.look.parent(f"{cache}/x")[0] is None:
            return
        for name in sorted(os.listdir(self.site.absolute(cache))):
            if _made_from(f"{cache}/{name}", cache, stem):
                yield f"{cache}/{name}"

    # --- RECORD -------------------------------------------------------------

    def records(self) -> None:
        """Make each RECORD true that lists a touched file, starting from its untouched form."""
        from vllm_mods.trees import names  # noqa: PLC0415  (a revert to nothing needs it not)

        touched = {
            path: None if file.after is None else (file.after, file.size or 0)
            for path, file in self.net.items()
            if file.kind == receipt.FILE and not path.startswith(("/", f"{receipt.STATE}/"))
        }
        found: dict[str, dict[str, tuple[str, int] | None]] = {
            file.path: {} for file in self.old.values() if file.kind == receipt.RECORD
        }
        if touched:
            folders = [one for one in os.listdir(self.site.root) if one.endswith(".dist-info")]
        else:
            folders = []
        bases: dict[str, bytes] = {}
        for path, file in touched.items():
            for folder in names.owners_first(folders, path):
                owner = f"{folder}/RECORD"
                if owner not in bases:
                    bases[owner] = self.untouched(owner)
                wanted = self.net[path].before is not None
                if record.lists(bases[owner], path) if wanted else _takes(bases[owner], path):
                    found.setdefault(owner, {})[path] = file
                    break
        for owner, files in found.items():
            self.record(owner, files)

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
            self.folders.maybe_gone.update(self.own_parents(path))

    def own_parents(self, path: str) -> Iterator[str]:
        """Yield the folders that may go with a file: those in our own, and those mods needed."""
        folder = os.path.dirname(path)
        while folder and folder != "/":
            known = self.old.get(folder)
            if folder.split("/", 1)[0] == receipt.STATE or (
                known is not None and known.kind == receipt.FOLDER
            ):
                yield folder
            folder = os.path.dirname(folder)

    def step(self, path: str, info: os.stat_result | None, after: str | None) -> journal.Step:
        absolute = self.site.absolute(path)
        folder, name = os.path.split(absolute)
        # 200 bytes of the name: the whole may be as long as a file system allows.
        stem = os.fsencode(name)[:200].decode("utf-8", "surrogateescape")
        temp, n = f"{folder}/.{stem}.vllm-mods", 0
        while os.path.lexists(temp):
            n += 1
            temp = f"{folder}/.{stem}.vllm-mods{n}"
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
        folder = os.path.dirname(path)
        info = self.look.folders.get(self.site.absolute(folder))
        if info is not None:
            self.folders.kept[folder] = journal.folder(folder, info)

    def finish(self) -> Draft:
        gone = self.gone_folders()
        if self.transition.mods:
            self.new_receipt()
            final: Receipt | None = self.final_receipt()
        else:
            final = None
        for folder in (*self.folders.made, *gone):
            parent = os.path.dirname(folder)
            info = self.look.folders.get(self.site.absolute(parent))
            if info is not None:
                self.folders.kept[parent] = journal.folder(parent, info)
        for folder in gone:
            self.folders.kept.pop(folder, None)
        # The receipt is the last file: whoever sees it sees the rest.
        ops = sorted(self.ops.values(), key=lambda op: op.step.path == receipt.RECEIPT)
        return Draft(
            ops=tuple(ops),
            journal=journal.Journal(
                steps=tuple(op.step for op in ops),
                kept=tuple(self.folders.kept.values()),
                made=tuple(self.folders.made),
                gone=tuple(gone.values()),
            ),
            owner=(self.root_info.st_uid, self.root_info.st_gid),
            receipt=final,
            notes=tuple(self.notes),
        )

    def gone_folders(self) -> dict[str, Folder]:
        """Find the folders that will be empty and are ours to remove, outer ones first."""
        candidates = self.folders.maybe_gone | {
            path for path, file in self.old.items() if file.kind == receipt.FOLDER
        }
        ours = {
            folder
            for folder in candidates
            if folder.split("/", 1)[0] == receipt.STATE
            or (
                (known := self.old.get(folder.removesuffix("/__pycache__"))) is not None
                and known.kind == receipt.FOLDER
            )
        }
        if not self.transition.mods:
            ours.add(receipt.STATE)
        gone: dict[str, Folder] = {}
        for folder in sorted(ours, key=len, reverse=True):
            info = self.look.parent(f"{folder}/x")[0]
            if info is None:
                self.net.pop(folder, None)
            elif self.empties(folder, gone):
                gone[folder] = journal.folder(folder, info)
                self.net.pop(folder, None)
            elif folder in self.old and not self.transition.mods:
                self.notes.append(f"{folder} was made for a mod and stays: it holds other files")
            elif folder == receipt.STATE:
                self.notes.append(f"{folder} stays: it holds files that are not ours")
        return dict(sorted(gone.items()))

    def empties(self, folder: str, gone: dict[str, Folder]) -> bool:
        if any(made.startswith(f"{folder}/") for made in self.folders.made):
            return False
        inside = f"{folder}/"
        if any(op.step.path.startswith(inside) and not op.removes for op in self.ops.values()):
            return False
        for name in os.listdir(self.site.absolute(folder)):
            path = f"{folder}/{name}"
            if path not in gone and not (path in self.ops and self.ops[path].removes):
                return False
        return True

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


def _made_from(path: str, cache: str, stem: str) -> bool:
    prefix = f"{cache}/{stem}."
    return path.startswith(prefix) and _TAG.match(path[len(prefix) :]) is not None


def _takes(base: bytes, path: str) -> bool:
    """Tell whether a RECORD lists the package that a new file goes into."""
    folder = os.path.dirname(path)
    while folder:
        if record.lists(base, f"{folder}/__init__.py"):
            return True
        folder = os.path.dirname(folder)
    return False


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
