"""A tree that holds exactly some mods: what is not among them goes, what is missing comes, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.applying import carry_out, claims, ground
from vllm_mods.applying.opening import check_finished, open_tree, templates_of
from vllm_mods.applying.plan_on_ground import Terms, plan_on_ground
from vllm_mods.base.errors import refusing
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.tree import Folder
from vllm_mods.formats.receipt import ReceiptMod
from vllm_mods.library import trust
from vllm_mods.site import integrity, transitions
from vllm_mods.trees import receipt_tree


class Exactly(NamedTuple):
    """What has to be done, or was done, so that a tree holds exactly some mods.

    ``out`` are those that go, ``into`` those that come, ``renewed`` those that were another version;
    ``changed`` are the paths that are written or removed. Nothing is to be done if ``settled``.
    """

    target: str
    plan: Plan
    out: tuple[ReceiptMod, ...]
    into: tuple[ReceiptMod, ...]
    renewed: tuple[ReceiptMod, ...]
    changed: tuple[str, ...]
    notes: tuple[str, ...]
    settled: bool
    templates: str


def hold(mods: Sequence[Mod], target: Folder, terms: Terms) -> Exactly:
    """Make a tree hold exactly these mods, or tell what that would take. Raises as ``apply`` does."""
    trust.demand(mods)
    notes: list[str] = []
    with refusing():
        tree, state = open_tree(
            target, terms.workspace, recovering=notes.append if terms.write else None
        )
        check_finished(tree, state, "sync")
        gone = integrity.undone_in(state)
        left = state.receipt
        if left is not None:
            left = ground.Ground(tree, left, gone).left if gone.paths else left
            claims.check(tree, left)
        bare = ground.Ground(receipt_tree.pristine(tree, left), None)
        plan = plan_on_ground(mods, bare, tree.workspace, terms).whole
        notes += carry_out.check_agreement(plan, tree, terms, notes)
        wanted = transitions.forward(plan, None)
        if left is not None:
            wanted = transitions.revert_transition(tree.root, left, wanted)
            wanted = wanted._replace(undone=gone.paths)
        settled = wanted.mods == state.mods and not wanted.changes
        changed: tuple[str, ...] = ()
        if not settled:
            outcome = carry_out.commit(tree, state, wanted, terms)
            changed, notes = outcome.changed, [*notes, *outcome.notes]
    was = {one.name: one for one in state.mods}
    now = {one.name: one for one in wanted.mods}
    return Exactly(
        tree.root,
        plan,
        tuple(one for name, one in was.items() if name not in now),
        tuple(one for name, one in now.items() if name not in was),
        tuple(one for name, one in now.items() if name in was and one.digest != was[name].digest),
        changed,
        tuple(notes),
        settled,
        templates_of(tree),
    )
