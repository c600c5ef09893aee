"""The transitions of a tree: forward by a plan, back to the untouched tree or to one with fewer mods."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange, ModPlan, Plan
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import Receipt, ReceiptFile, ReceiptMod
from vllm_mods.library import packed_mod
from vllm_mods.site import site
from vllm_mods.site.operations import Transition


def forward(planned: Plan, there: Receipt | None) -> Transition:
    """Return what brings the tree from ``there`` to what the plan says.

    Mods that are in stay in; mods that write come after them. A mod that is in without a
    receipt, or that the release carries itself, is none of ours and gets no entry.
    """
    before = () if there is None else there.mods
    new = [one for one in planned.mods if one.verdict.writes]
    return Transition(
        changes=planned.changes,
        before=before,
        mods=(*before, *(_entry(one) for one in new)),
        vllm=planned.version,
        sources=tuple((one.mod.name, packed_mod.pack(one.mod)) for one in new),
    )


def revert_transition(
    root: str,
    there: Receipt,
    *,
    mods: Sequence[ReceiptMod] = (),
    changes: Sequence[FileChange] = (),
    sources: Sequence[tuple[str, bytes]] = (),
    discard_edits: bool = False,
) -> Transition:
    """Return the transition from what ``there`` says is in to the mods that stay.

    Without ``mods`` every file goes back to its original. Otherwise ``mods`` are the entries
    of those that stay and ``changes`` their net effect on the untouched tree (they were
    planned again on it). ``sources`` replace those kept for a mod.

    Raises ``Refused`` if a file that would be written was changed since, unless
    ``discard_edits``. A file that is already as it was before the mods was not "changed".
    """
    root = os.path.realpath(root)
    where = site.Site(root=root, workspaces=(there.workspace,) if there.workspace else ())
    look = site.Look(site=where, folders={})
    wanted = {change.path: change for change in changes}
    written: list[FileChange] = []
    restored: set[str] = set()
    edited: list[str] = []
    for file in there.files:
        if file.kind == receipt.RECORD:
            _check_still_installed(where, look, file, there)
        if file.kind != receipt.FILE:
            continue  # these follow from the files
        info = look.file(file.path)
        current = None if info is None else site.read(where.absolute(file.path))
        change = wanted.pop(file.path, None)
        if change is None:
            restored.add(file.path)
            change = FileChange(file.path, current, None)
        elif change.after == current and change.mode in {None, file.mode}:
            continue  # it is already as it is to be
        written.append(change._replace(before=current))
        if sha256(current) not in {file.before, file.after}:
            edited.append(file.path)
    written += wanted.values()
    if edited and not discard_edits:
        raise Refused(
            f"{root}: changed since the mods went in: {', '.join(edited)} (by whom, nothing here "
            "can tell); taking the mods out would throw these edits away; nothing was changed",
            hint=f"vllm-mods revert --discard-edits --target {root}  # throws them away",
        )
    return Transition(
        changes=tuple(written),
        restored=frozenset(restored),
        before=there.mods,
        mods=tuple(mods),
        vllm=there.vllm,
        sources=tuple(sources),
        discard_edits=discard_edits,
    )


def _check_still_installed(
    where: site.Site, look: site.Look, record: ReceiptFile, there: Receipt
) -> None:
    """Refuse to put an older release's files into a newer one."""
    if look.file(record.path) is None:
        was = f"vLLM {there.vllm}" if there.vllm else "vLLM"
        raise Refused(
            f"{record.path} is gone: {was} was upgraded or removed since the mods went in, and its "
            "originals belong to no file that is there now; nothing was changed",
            hint=f"the receipt is out of date: rm -r {where.absolute(receipt.STATE)}",
        )


def _entry(one: ModPlan) -> ReceiptMod:
    return ReceiptMod(
        name=one.mod.name,
        version=one.mod.version,
        digest=one.mod.digest,
        variant=one.variant.id if one.variant is not None else "",
        verdict=one.verdict.value,
        files=receipt.hashes(one.changes),
    )
