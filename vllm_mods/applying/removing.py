"""What becomes of a tree when some of its mods are taken out: the others are planned on it anew."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mods.applying import claims, ground
from vllm_mods.applying.advice import reasons
from vllm_mods.applying.ground import Ground
from vllm_mods.applying.opening import in_tree, open_tree
from vllm_mods.applying.outcomes import Reverted
from vllm_mods.base.errors import Refused, refusing
from vllm_mods.base.tree import Folder
from vllm_mods.formats.receipt import Receipt
from vllm_mods.planning import planner
from vllm_mods.site import integrity, transaction, transitions
from vllm_mods.site.operations import Transition
from vllm_mods.trees import receipt_tree
from vllm_mods.trees.folder import FolderTree


def remove(
    target: Folder,
    names: Sequence[str],
    *,
    discard_edits: bool = False,
    source_date_epoch: int | None = None,
) -> Reverted:
    """Take mods out of a tree, all of them without ``names``. Raises as ``revert`` does."""
    notes: list[str] = []
    with refusing():
        tree, state = open_tree(target, None, recovering=notes.append)
        names = in_tree(names, state, tree)
        known = tuple(entry.name for entry in state.mods)
        gone = names or known
        changed: tuple[str, ...] = ()
        if state.receipt is not None:
            undone = integrity.undone_in(state)
            # what an installer has undone is out already, and is not put in again by this
            gone = tuple(name for name in known if name in {*gone, *undone.mods(state.receipt)})
            left = Ground(tree, state.receipt, undone).left if undone.paths else state.receipt
            try:
                transition = plan_removal(tree, left, gone, discard_edits=discard_edits)
            except OSError as error:
                raise transaction.refusal(tree.root, error) from error
            outcome = transaction.commit(
                tree.root,
                transition._replace(undone=undone.paths),
                workspace=state.receipt.workspace,
                source_date_epoch=source_date_epoch,
                known=state,
            )
            changed = outcome.changed
            notes += outcome.notes
        version = tree.version
    stay = tuple(entry for entry in state.mods if entry.name not in gone)
    return Reverted(tree.root, version, gone, stay, changed, tuple(notes))


def plan_removal(
    tree: FolderTree, current: Receipt, gone: Sequence[str], *, discard_edits: bool
) -> Transition:
    """Return the transition to the untouched tree with the remaining mods planned on it anew.

    Raises ``Refused`` where one of them needs one that goes, would not go in, or is not kept.
    """
    claims.check(tree, current)
    stay = [entry for entry in current.mods if entry.name not in gone]
    if not stay:
        return transitions.revert_transition(tree.root, current, discard_edits=discard_edits)
    mods = ground.staying(tree, current, gone)
    needed = [f"{mod.name} needs {name}" for mod in mods for name in mod.requires if name in gone]
    if needed:
        raise Refused(
            f"nothing was changed in {tree.spec}: {'; '.join(needed)}",
            hint=f"vllm-mods revert {' '.join([*gone, *(mod.name for mod in mods)])} --target {tree.spec}",
        )
    plan = planner.plan(
        mods, receipt_tree.pristine(tree, current), workspace=current.workspace or planner.WORKSPACE
    )
    bad = [one for one in plan.mods if not one.verdict.ok]
    if bad:
        lines = [
            f"nothing was changed in {tree.spec}: without {', '.join(gone)} others would not go in",
            *reasons(plan),
        ]
        names = " ".join([*gone, *(one.mod.name for one in bad)])
        hint = f"vllm-mods revert {names} --target {tree.spec}"
        raise Refused("\n".join(lines), hint=hint, plan=plan)
    wanted = transitions.forward(plan, None)
    return transitions.revert_transition(tree.root, current, wanted, discard_edits=discard_edits)
