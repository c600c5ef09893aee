"""How far a receipt is believed: what ``revert`` deletes, a mod that is kept beside it has to bring."""

import os
import re

from vllm_mods.base.errors import DiffError, ManifestError, Refused
from vllm_mods.formats import receipt
from vllm_mods.library import packed_mod
from vllm_mods.planning import patching, planner
from vllm_mods.trees.folder import FolderTree

_FORMS = {
    receipt.RECORD: r"[^/]+\.dist-info/RECORD\Z",
    receipt.BYTECODE: r"(?:.*/)?__pycache__/[^/]+\.pyc\Z",
}


def check(tree: FolderTree, current: receipt.Receipt) -> None:
    """Raise ``Refused`` for a receipt by which a file would be deleted that no mod has made.

    A mod counts as far as its kept form has the digest that the receipt states; and a file of which
    the original is kept was there before any mod.
    """
    new_files = {path for entry in current.mods for path in _new_files(tree, current, entry)}
    doubtful = [file.path for file in current.files if not _is_supported(tree, file, new_files)]
    if doubtful:
        places = [path if path.startswith("/") else f"{tree.root}/{path}" for path in doubtful]
        why = f"the receipt of {tree.spec} says that mods created {', '.join(doubtful)}, but no mod in {receipt.MODS} creates them. The receipt or a stored mod was edited or lost. Nothing was changed"
        hint = f"ls -l {' '.join(places)}  # if a mod created them, remove them and revert again"
        raise Refused(why, hint=hint)


def check_outside(current: receipt.Receipt, target: str) -> None:
    """Refuse a receipt that would have files outside of the tree replaced: no mod ever did that."""
    for file in current.files:
        if file.path.startswith("/") and (file.before is not None or file.kind != receipt.FILE):
            why = f"the receipt of {target} says that a mod replaced {file.path}, which is outside the tree. vllm-mods never does that, so another program wrote this receipt. Nothing was changed"
            hint = f"less {target}/{receipt.RECEIPT}  # shows the receipt; reinstall vLLM if its origin is unknown"
            raise Refused(why, hint=hint)


def _is_supported(tree: FolderTree, file: receipt.ReceiptFile, new_files: set[str]) -> bool:
    if file.kind == receipt.FOLDER:
        return True  # removed only if nothing is in it
    if file.kind != receipt.FILE:
        return file.before is not None and re.match(_FORMS[file.kind], file.path) is not None
    if file.before is not None:
        return True  # put back from an original that has to have this hash
    if not os.path.lexists(os.path.join(tree.root, file.path)):
        return True
    original = os.path.join(tree.root, receipt.original(file.path))
    return file.path in new_files and not os.path.lexists(original)


def _new_files(tree: FolderTree, current: receipt.Receipt, entry: receipt.ReceiptMod) -> list[str]:
    """Return the files that a mod makes where there are none; none if it is not as it went in."""
    try:
        mod = packed_mod.kept_mod(tree, entry.name)
        if mod is None or mod.digest != entry.digest:
            return []
        variant = next((one for one in mod.variants if one.id == entry.variant), None)
        if variant is None:
            return []
        workspace = current.workspace or planner.WORKSPACE
        parts = patching.parts_of(mod, variant, workspace, vouched=True)
    except (Refused, ManifestError, DiffError):
        return []
    return [
        part.path if part.diff is None else part.diff.new_path or ""
        for part in parts
        if part.other is None
        and (part.diff is None or part.diff.old_path != part.diff.new_path or part.diff.may_create)
    ]
