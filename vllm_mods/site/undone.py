"""What an installer has undone of the mods that a receipt names. Reads only.

``pip install --upgrade``, ``--force-reinstall``, an uninstall and a fresh install leave ``.vllm-mods`` where it
is, and put files of their own in place of what mods had changed.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.tree import Tree
from vllm_mods.formats import receipt, record
from vllm_mods.formats.receipt import Receipt, ReceiptFile
from vllm_mods.site import bytecode
from vllm_mods.site.journal_text import Step


class Undone(NamedTuple):
    """What a receipt still says of ``paths`` holds no more: these are as an installation has them.

    ``edited`` are files that are neither that nor as the mods left them.
    """

    paths: frozenset[str] = frozenset()
    edited: tuple[str, ...] = ()

    def mods(self, applied: Receipt) -> tuple[str, ...]:
        """Return the names of the mods that are not in whole any more."""
        files = ((mod.name, {one.path for one in mod.files}) for mod in applied.mods)
        return tuple(name for name, paths in files if not self.paths.isdisjoint(paths))


def look(applied: Receipt, tree: Tree) -> Undone:
    """Tell what of ``applied``, the receipt in ``tree``, an installer has undone. Reads only.

    A file is undone that is as before the mods; so is whatever belongs to a distribution whose RECORD is another one
    now and does not list what the mods made: that one's originals are of an installation that is gone.
    """
    records = (one for one in applied.files if one.kind == receipt.RECORD)
    new = {  # each as it was before the mods, or as it is if that is lost
        one: receipt.untouched(one, lambda path: _plain(tree, path)) or tree.read(one.path)
        for one in records
        if _is_new(one, applied, tree)
    }
    paths, edited = set(), []
    for file in applied.files:
        if file.kind != receipt.FILE or file.path.startswith(f"{receipt.STATE}/"):
            continue
        try:
            data = tree.read(file.path)
        except VllmModsError:  # behind a link, say; or in a workspace that is not at hand
            edited += [] if file.path.startswith("/") else [file.path]
            continue
        if _is_undone(tree, file, data, new):
            paths.add(file.path)
        elif sha256(data) != file.after and (data is not None or file.before is not None):
            edited.append(file.path)
    if paths:
        files = [one.path for one in applied.files if one.path in paths]
        paths.update(one.path for one, base in new.items() if _lists_any(base, files))
        caches = [one.path for one in applied.files if one.kind == receipt.BYTECODE]
        paths.update(one for one in caches if any(bytecode.is_of(one, path) for path in files))
    return Undone(frozenset(paths), tuple(edited))


def installed_anew(
    tree: Tree, steps: Sequence[Step], before: Callable[[Step], bytes | None]
) -> set[str]:
    """Return the paths of an interrupted transaction that an installer has put files of its own at since.

    ``before`` returns a file as it was. A file is theirs that a RECORD lists, and that neither was there nor
    was to be; and so is all that a RECORD listed which is another one now, if what the transaction would have
    left is nowhere but where a RECORD lists it.
    """
    paths: set[str] = set()
    for step in steps:
        data = _plain(tree, step.path)
        folder, _slash, name = step.path.rpartition("/")
        if name != "RECORD" or "/" in folder:  # one that we keep is no RECORD of the tree's
            other = data is not None and sha256(data) not in {step.before, step.after}
            if other and tree.is_released(step.path, data or b""):
                paths.add(step.path)
            continue
        if data is not None and sha256(data) in {step.before, step.after}:
            continue
        base = before(step) or b""
        mine = [one for one in steps if record.lists(base, one.path) and one is not step]
        left = [(one, now) for one in mine if _as_left(one, now := _plain(tree, one.path))]
        if all(tree.is_released(one.path, now or b"") for one, now in left) and (
            data is None or not mine or len(left) < len(mine)
        ):
            paths.update([one.path for one in mine], [step.path])
    every = (step.path for step in steps)
    return paths | {one for one in every if any(bytecode.is_of(one, source) for source in paths)}


def _plain(tree: Tree, path: str) -> bytes | None:
    """Return a file, None where there is none, or what lies behind a link or in a workspace."""
    try:
        return tree.read(path)
    except VllmModsError:
        return None


def _as_left(step: Step, data: bytes | None) -> bool:
    return data is not None and sha256(data) == step.after != step.before


def free_name(root: str) -> str:
    """Return a name that a copy of our folder can have."""
    names = (f"{receipt.STATE}.old-{n}" for n in itertools.count(1))
    return next(name for name in names if not os.path.lexists(f"{root}/{name}"))


def _is_new(record_file: ReceiptFile, applied: Receipt, tree: Tree) -> bool:
    """Tell whether a RECORD is neither the one that the mods left nor lists what they made."""
    try:
        data = tree.read(record_file.path)
    except VllmModsError:  # behind a link, say, where it tells nothing
        return False
    if data is None or sha256(data) in {record_file.before, record_file.after}:
        return data is None or sha256(data) == record_file.before
    files = (file for file in applied.files if file.kind == receipt.FILE)
    made = ((one.path, one.after, one.size or 0) for one in files if one.after != one.before)
    return not any(after and record.agrees(data, path, after, size) for path, after, size in made)


def _is_undone(
    tree: Tree, file: ReceiptFile, data: bytes | None, new: dict[ReceiptFile, bytes | None]
) -> bool:
    digest = sha256(data)
    owner = next((one for one, base in new.items() if _lists_any(base, [file.path])), None)
    if owner is None:
        return data is not None and digest == file.before != file.after
    if digest != file.after or file.before == file.after:
        return True
    # As a mod left it, beside a RECORD that somebody put back; or there is none, which says nothing.
    package = file.path.partition("/")[0]
    listing = tree.is_released(f"{package}/__init__.py", b"") is not None
    return listing and sha256(tree.read(owner.path)) != owner.before


def _lists_any(base: bytes | None, paths: list[str]) -> bool:
    says = (record.lists, record.takes)
    return base is not None and any(say(base, path) for path in paths for say in says)
