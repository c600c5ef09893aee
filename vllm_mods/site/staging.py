"""From a transition to every single step of it, in order. Looks at the tree, writes nothing.

Adds to what the caller wants changed whatever follows from it: originals, the RECORD of the
distribution, stale bytecode, the sources of the mods, the receipt, folders that come and go.
Everything that could be refused is refused here, before the first write.
"""

import os
import stat
from collections.abc import Iterator

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.formats import receipt, record, tree_names
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.site import bytecode, obstacles, site
from vllm_mods.site.journal_text import Journal
from vllm_mods.site.step_list import NEW_FILE_MODE, Draft, Op, Steps
from vllm_mods.site.transitions import Transition


def draft(
    where: site.Site, applied: Receipt | None, transition: Transition, *, keep_links: bool = False
) -> Draft:
    """Draft a transition of the tree at ``where``, whose receipt is ``applied``.

    Raises ``Refused`` for a file that is not as expected, is reached through a link, has
    other names (with ``keep_links``), is read-only or lies outside.
    """
    if applied is not None and transition.undone:
        applied = receipt.without(applied, transition.undone)
    drafter = _Drafter(where, applied, transition, keep_links=keep_links)
    site.check_writable(receipt.STATE, None, drafter.look)
    drafter.targets()
    drafter.records()
    drafter.state()
    if transition.aside is not None:
        drafter.set_aside(transition.aside)
    return drafter.finish()


class _Drafter(Steps):
    def targets(self) -> None:
        for change in self.transition.changes:
            path, expected = change.path, sha256(change.before)
            site.check_target(self.site, path)
            current = self.digest(path)
            if current != expected:
                raise _changed(self.site, path, expected, current)
            missing = self.look.missing(path)
            self.writable(path)
            for folder in missing:
                if folder.split("/", 1)[0] != receipt.STATE:
                    entry = ReceiptFile(folder, None, None, kind=receipt.FOLDER)
                    self.net.setdefault(folder, entry)
            if path in self.transition.restored:
                self.restore(path)
            else:
                self.touch(path, change.after, change.mode)
            if path.endswith(".py"):
                self.compiled(path)

    def compiled(self, source: str) -> None:
        """Remove what interpreters made of the source; bring back what they had made before."""
        first = source not in self.old
        if source in self.transition.restored:
            for path in [path for path in self.old if bytecode.is_of(path, source)]:
                self.restore(path)
        for path in bytecode.of(self.look, source):
            if path in self.ops or self.info(path) is None:
                continue
            site.check_writable(path, None, self.look)
            if first:
                self.touch(path, None, kind=receipt.BYTECODE)
            else:
                self.remove(path)
        self.maybe_gone.add(bytecode.cache(source))

    def records(self) -> None:
        """Make each RECORD true that lists a touched file, starting from its untouched form."""
        touched = {
            path: None if file.after is None else (file.after, file.size or 0)
            for path, file in self.net.items()
            if file.kind == receipt.FILE and not path.startswith(("/", f"{receipt.STATE}/"))
        }
        owners = {file.path for file in self.old.values() if file.kind == receipt.RECORD}
        folders = [name for name in os.listdir(self.site.root) if name.endswith(".dist-info")]
        bases: dict[str, bytes] = {}
        likely = {path: tree_names.owners_first(folders, path) for path in touched}
        listed = {path: self.owner(path, names, bases) for path, names in likely.items()}
        owners |= {owner for owner in listed.values() if owner is not None}
        for owner in sorted(owners):
            self.record(owner, {path: touched[path] for path in touched if listed[path] == owner})

    def owner(self, path: str, folders: list[str], bases: dict[str, bytes]) -> str | None:
        """Find the RECORD that lists a file or, for a new one, the package that it goes into."""
        says = record.takes if self.net[path].before is None else record.lists
        for folder in folders:
            owner = f"{folder}/RECORD"
            if owner not in bases:
                bases[owner] = self.untouched(owner)
            if says(bases[owner], path):
                return owner
        return None

    def record(self, owner: str, files: dict[str, tuple[str, int] | None]) -> None:
        current = self.digest(owner)
        known = self.old.get(owner)
        base = self.untouched(owner)
        data = record.edit(base, files)
        throw_away = current is not None and self.transition.discard_edits
        if known is not None and current not in {known.before, known.after} and not throw_away:
            raise _changed(self.site, owner, known.after, current)
        if data == base:
            if known is not None:
                self.writable(owner)
                self.restore(owner)
        elif sha256(data) != current:
            self.writable(owner)
            self.touch(owner, data, kind=receipt.RECORD)

    def state(self) -> None:
        """Bring the receipt and the mods' sources up to date."""
        mods = self.transition.mods
        wanted = {receipt.kept(mod.name) for mod in mods}
        for path in self.below(receipt.MODS):
            if path not in wanted:
                self.remove(path)
        for name, data in self.transition.sources:
            if (path := receipt.kept(name)) in wanted:
                self.own(path, data)
        if not mods:
            self.leftovers()
            self.remove(receipt.RECEIPT)

    def leftovers(self) -> None:
        """Check that nothing stays changed when no mod is in, and clear what is ours."""
        left = [file.path for file in self.net.values() if file.kind != receipt.FOLDER]
        if left:
            raise ValueError(f"no mod would be applied, but these files would stay changed: {left}")
        for path in self.below(receipt.ORIGINALS):
            if path not in self.ops:
                self.remove(path)
        self.maybe_gone.add(receipt.TEMPLATES)

    def set_aside(self, name: str) -> None:
        """Copy our folder, and drop originals of an installation that is gone."""
        files = list(self.below(receipt.STATE))
        for path in files:
            step = self.step(name + path.removeprefix(receipt.STATE), self.digest(path))
            self.add(Op(step, None, source=self.site.absolute(path), private=True))
        wanted = {receipt.original(path) for path, one in self.net.items() if one.before}
        for path in files:
            is_needed = path in wanted or path in self.ops
            if path.startswith(f"{receipt.ORIGINALS}/") and not is_needed:
                self.remove(path)

    def below(self, folder: str) -> Iterator[str]:
        """Yield the files of our own below a folder, which may itself become empty."""
        self.maybe_gone.add(folder)
        for name in self.look.names(folder):
            path = f"{folder}/{name}"
            info = site.status(self.site.absolute(path))
            if info is not None and stat.S_ISDIR(info.st_mode):
                yield from self.below(path)
            else:
                yield path

    def own(self, path: str, data: bytes) -> None:
        if self.digest(path) != sha256(data):
            self.put(path, data, NEW_FILE_MODE)

    def finish(self) -> Draft:
        gone, notes = self.gone()
        final = self.final_receipt() if self.transition.mods else None
        if final is not None:
            self.own(receipt.RECEIPT, receipt.dump(final))
        folders = self.kept(gone)
        # The receipt is the last file: whoever sees it sees the rest.
        ops = sorted(self.ops.values(), key=lambda op: op.step.path == receipt.RECEIPT)
        existing = [op.step.path for op in ops if op.info is not None]
        real = self.site.absolute
        places = [real(path) for path in (*existing, *(one.path for one in gone))]
        obstacles.check(places, [real(one.path) for one in folders])
        steps = Journal(tuple(op.step for op in ops), folders, tuple(self.made), gone)
        return Draft(ops=tuple(ops), journal=steps, receipt=final, notes=(*notes, *self.linked()))

    def linked(self) -> tuple[str, ...]:
        """Say which files have other names: `uv` and `conda` link what they install to their caches."""
        linked = [path for path, op in self.ops.items() if op.info and op.info.st_nlink > 1]
        if not linked:
            return ()
        more = f" and {len(linked) - 1} more are" if len(linked) > 1 else " is"
        why = "perhaps to a package cache (uv, conda). The other links do not change, because this tree"
        return (f"{linked[0]}{more} hard-linked, {why} gets its own files",)

    def final_receipt(self) -> Receipt:
        is_outside = any(path.startswith("/") for path in self.net)
        return receipt.Receipt(
            vllm=self.transition.vllm,
            mods=self.transition.mods,
            files=tuple(sorted(self.net.values(), key=lambda file: file.path)),
            workspace=self.site.workspaces[0] if is_outside else None,
        )


def _changed(where: site.Site, path: str, expected: str | None, actual: str | None) -> Refused:
    if expected is None:
        what = "already exists"
    elif actual is None:
        what = "is gone"
    else:
        what = f"was changed: its sha256 is {actual[:12]}…, but {expected[:12]}… was expected"
    hint = f"vllm-mods verify --target {where.root}"
    return Refused(f"{path} {what}; nothing was changed", hint=hint)
