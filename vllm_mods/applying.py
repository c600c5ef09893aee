"""From a plan to the transition that carries it out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mods import keep
from vllm_mods.digest import sha256
from vllm_mods.draft import Transition, Write
from vllm_mods.receipt import FileHash, ReceiptMod

if TYPE_CHECKING:
    from vllm_mods.model import ModPlan, Plan
    from vllm_mods.receipt import Receipt


def transition(planned: Plan, there: Receipt | None) -> Transition:
    """Return what brings the tree from ``there`` to what the plan says.

    Mods that are in stay in; mods that write come after them. A mod that is in without a
    receipt, or that the release carries itself, is none of ours and gets no entry.
    """
    writes = tuple(
        Write(path=change.path, expected=sha256(change.before), data=change.after, mode=change.mode)
        for change in planned.changes
    )
    before = () if there is None else there.mods
    new = [one for one in planned.mods if one.verdict.writes]
    return Transition(
        writes=writes,
        before=before,
        mods=(*before, *(_entry(one) for one in new)),
        vllm=planned.version,
        sources=tuple((one.mod.name, keep.pack(one.mod)) for one in new),
    )


def _entry(one: ModPlan) -> ReceiptMod:
    return ReceiptMod(
        name=one.mod.name,
        version=one.mod.version,
        digest=one.mod.digest,
        variant=one.variant.id if one.variant is not None else "",
        verdict=one.verdict.value,
        files=tuple(
            FileHash(path=change.path, before=sha256(change.before), after=sha256(change.after))
            for change in one.changes
        ),
    )
