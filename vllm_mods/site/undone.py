"""What an installer has undone of the mods that a receipt names. Reads only.

``pip install --upgrade``, ``--force-reinstall``, an uninstall and a fresh install leave ``.vllm-mods`` where it
is, and put files of their own in place of what mods had changed.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import VllmModsError
from vllm_mods.formats import receipt, record
from vllm_mods.site import bytecode

if TYPE_CHECKING:
    from vllm_mods.base.model import Tree
    from vllm_mods.formats.receipt import Receipt, ReceiptFile


class Undone(NamedTuple):
    """What a receipt still says of ``paths`` holds no more: these are as an installation has them.

    ``edited`` are files that are neither that nor as the mods left them.
    """

    paths: frozenset[str] = frozenset()
    edited: tuple[str, ...] = ()

    def mods(self, there: Receipt) -> tuple[str, ...]:
        """Return the names of the mods that are not in whole any more."""
        return tuple(
            mod.name for mod in there.mods if any(one.path in self.paths for one in mod.files)
        )


def look(there: Receipt, tree: Tree) -> Undone:
    """Tell what of ``there``, the receipt in ``tree``, an installer has undone. Reads only.

    A file is undone that is as before the mods; so is whatever belongs to a distribution whose RECORD
    is another one now and does not list what the mods made: that one's originals are of an
    installation that is gone.
    """
    new = [one for one in there.files if one.kind == receipt.RECORD and _is_new(one, there, tree)]
    listed = [base for one in new if (base := _list_of(tree, one)) is not None]
    paths, edited = set(), []
    for file in there.files:
        if file.kind != receipt.FILE or file.path.startswith(f"{receipt.STATE}/"):
            continue
        try:
            data = tree.read(file.path)
        except VllmModsError:  # behind a link, say; or in a workspace that is not at hand
            edited += [] if file.path.startswith("/") else [file.path]
            continue
        if _is_undone(tree, file, data, listed):
            paths.add(file.path)
        elif sha256(data) != file.after and (data is not None or file.before is not None):
            edited.append(file.path)
    if paths:
        files = [one.path for one in there.files if one.path in paths]
        paths.update(one.path for one in new if _lists_any(_list_of(tree, one), files))
        paths.update(
            one.path
            for one in there.files
            if one.kind == receipt.BYTECODE
            and any(bytecode.is_of(one.path, path) for path in files)
        )
    return Undone(frozenset(paths), tuple(edited))


def free_name(root: str) -> str:
    """Return a name that a copy of our folder can have."""
    names = (f"{receipt.STATE}.old-{n}" for n in itertools.count(1))
    return next(name for name in names if not os.path.lexists(f"{root}/{name}"))


def _is_new(one: ReceiptFile, there: Receipt, tree: Tree) -> bool:
    """Tell whether a RECORD is neither the one that the mods left nor lists what they made."""
    data = tree.read(one.path)
    if data is None or sha256(data) in {one.before, one.after}:
        return data is None or sha256(data) == one.before
    return not any(
        record.agrees(data, file.path, file.after, file.size or 0)
        for file in there.files
        if file.kind == receipt.FILE and file.after is not None and file.after != file.before
    )


def _is_undone(tree: Tree, file: ReceiptFile, data: bytes | None, listed: list[bytes]) -> bool:
    digest = sha256(data)
    if not any(_lists_any(base, [file.path]) for base in listed):
        return data is not None and digest == file.before != file.after
    if digest != file.after or file.before == file.after:
        return True
    # As a mod left it: an installer did that, if there is a list and it does not have what was there before.
    package = file.path.partition("/")[0]
    listing = tree.is_released(f"{package}/__init__.py", b"") is not None
    return listing and not _was_listed(tree, file)


def _was_listed(tree: Tree, file: ReceiptFile) -> bool:
    if file.before is None:
        return tree.is_released(file.path, b"") is None
    base = _original(tree, file)
    return base is not None and tree.is_released(file.path, base) is True


def _lists_any(base: bytes | None, paths: list[str]) -> bool:
    """Tell whether a RECORD as it was before the mods has files, or the packages that new ones went into."""
    return base is not None and any(
        record.lists(base, path) or record.takes(base, path) for path in paths
    )


def _list_of(tree: Tree, one: ReceiptFile) -> bytes | None:
    """Return a RECORD as it was before the mods, as it is if that is lost."""
    return _original(tree, one) or tree.read(one.path)


def _original(tree: Tree, file: ReceiptFile) -> bytes | None:
    try:
        data = None if file.before is None else tree.read(receipt.original(file.path))
    except VllmModsError:
        return None
    return data if data is not None and sha256(data) == file.before else None
