"""What becomes of a tree when some of its mods are taken out: the others are planned on it anew."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mods.api import claims, ground
from vllm_mods.api.advice import reasons
from vllm_mods.base.errors import Refused
from vllm_mods.formats.receipt import Receipt
from vllm_mods.planning import planner
from vllm_mods.site import state_folder, transitions
from vllm_mods.site.operations import Transition
from vllm_mods.trees.folder import FolderTree


def without(
    tree: FolderTree, there: Receipt, gone: Sequence[str], *, discard_edits: bool
) -> Transition:
    """Return the transition to the untouched tree with the remaining mods planned on it anew.

    Raises ``Refused`` where one of them needs one that goes, would not go in, or is not kept.
    """
    claims.check(tree, there)
    stay = [entry for entry in there.mods if entry.name not in gone]
    if not stay:
        return transitions.revert_transition(tree.root, there, discard_edits=discard_edits)
    mods = ground.staying(tree, there, gone)
    needed = [f"{mod.name} needs {name}" for mod in mods for name in mod.requires if name in gone]
    if needed:
        raise Refused(
            f"nothing was changed in {tree.spec}: {'; '.join(needed)}",
            hint=f"vllm-mods revert {' '.join([*gone, *(mod.name for mod in mods)])} --target {tree.spec}",
        )
    made = planner.plan(
        mods, state_folder.pristine(tree, there), workspace=there.workspace or planner.WORKSPACE
    )
    bad = [one for one in made.mods if not one.verdict.ok]
    if bad:
        lines = [
            f"nothing was changed in {tree.spec}: without {', '.join(gone)} others would not go in",
            *reasons(made),
        ]
        names = " ".join([*gone, *(one.mod.name for one in bad)])
        hint = f"vllm-mods revert {names} --target {tree.spec}"
        raise Refused("\n".join(lines), hint=hint, plan=made)
    return ground.anew(tree.root, there, made, discard_edits=discard_edits)
