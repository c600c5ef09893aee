"""Mods into an installed vLLM: the plan on what is there, then the transaction.

The one module that knows both the planner and the writer of trees. All mods go in or none does, and what
was interrupted is undone before anything of a tree is read that is to be changed.
"""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.applying import ground
from vllm_mods.applying.advice import left_out, refusal
from vllm_mods.applying.ground import Ground, Planned
from vllm_mods.applying.opening import Folder, check_finished, opened, templates_of
from vllm_mods.applying.outcomes import Applied
from vllm_mods.base.errors import UsageError, refusing
from vllm_mods.base.model import Mod, Plan, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats.receipt import Receipt
from vllm_mods.library import trust
from vllm_mods.planning import planner
from vllm_mods.site import transaction, transitions
from vllm_mods.site.operations import Transition
from vllm_mods.site.state_folder import State
from vllm_mods.trees.folder import FolderTree


class Terms(NamedTuple):
    """On what terms mods go into a tree: the keywords of ``apply``, and whether anything is written."""

    workspace: Folder | None = None
    strict_version: bool = False
    only_supported: bool = False
    keep_links: bool = False
    planned: Callable[[Plan], object] | None = None
    without_files: bool = False
    source_date_epoch: int | None = None
    write: bool = True
    base: Tree | None = None


def carry_out(mods: Sequence[Mod], target: Folder, terms: Terms) -> Applied:
    """Put mods into a tree, or, if ``terms`` has nothing written, return what that would do.

    Both raise the same. A tree in which an earlier run was interrupted is refused where nothing is written:
    its state is known only after that run is undone.
    """
    notes: list[str] = []
    check_mods(mods)
    trust.demand(mods)
    with refusing():
        recovering = notes.append if terms.write else None
        tree, state = opened(target, terms.workspace, recovering=recovering)
        if not terms.write:
            check_finished(tree, state, "apply")
        plan, transition = _decide(mods, tree, state, notes, terms)
        changed: tuple[str, ...] = ()
        if transition is not None:
            outcome = commit(tree, state, transition, terms)
            changed = outcome.changed
            notes += outcome.notes
    return Applied(tree.root, plan, changed, tuple(notes), templates_of(tree))


def commit(
    tree: FolderTree, state: State, transition: Transition, terms: Terms
) -> transaction.Outcome:
    """Carry out a transition of a tree, or only return what it would change."""
    do = transaction.rehearse
    if terms.write:
        do = functools.partial(transaction.commit, source_date_epoch=terms.source_date_epoch)
    return do(
        tree.root, transition, workspace=tree.workspace, keep_links=terms.keep_links, known=state
    )


def _decide(
    mods: Sequence[Mod], tree: FolderTree, state: State, notes: list[str], terms: Terms
) -> tuple[Plan, Transition | None]:
    """Return the plan of mods, and the transition of the tree, None where nothing is to be done.

    Raises ``Refused`` where not every mod fits; ``notes`` gets more lines.
    """
    base = ground.of(tree, state.receipt)
    plan, whole = plan_on_ground(mods, base, tree.workspace, terms)
    notes += check_agreement(plan, tree, terms, notes)
    if base.bare is not None:
        transition = ground.transition(base, whole, tree.root)
        notes += ground.notes(base, plan, transition)
        return plan, transition
    if any(planned.verdict.writes for planned in plan.mods):
        return plan, transitions.forward(whole, state.receipt)
    return plan, None


def check_agreement(plan: Plan, tree: FolderTree, terms: Terms, notes: Sequence[str]) -> list[str]:
    """Hand a plan to the caller's ``planned``, and return a note for each file that is left out.

    Raises ``Refused`` where not every mod fits, with the ``notes`` so far in the message.
    """
    if terms.planned is not None:
        terms.planned(plan)
    if not plan.ok:
        raise refusal(plan, tree, notes)
    return left_out(plan, allowed=terms.without_files)


def plan_on_ground(
    mods: Sequence[Mod], base: Ground, workspace: str | None, terms: Terms
) -> Planned:
    """Plan mods on a tree as it stands. Raises ``UsageError`` for a base that one of them was not made for."""
    origin = None
    if (made_for := terms.base) is not None:
        check_base(mods, made_for)
        origin = lambda _mod, _variant: made_for  # noqa: E731

    def make_plan(chosen: Sequence[Mod], tree: Tree, receipt: Receipt | None) -> Plan:
        return planner.plan(
            chosen,
            tree,
            receipt=receipt,
            workspace=workspace or planner.WORKSPACE,
            strict_version=terms.strict_version,
            origin=origin,
        )

    result = ground.plan(base, mods, make_plan)
    supported = [one.mod for one in result.shown.mods if one.verdict is not Verdict.UNSUPPORTED]
    if terms.only_supported and len(supported) < len(result.shown.mods):
        return ground.plan(base, supported, make_plan)
    return result


def check_base(mods: Sequence[Mod], base: Tree) -> None:
    """Raise ``UsageError`` for a mod none of whose variants was made for a tree."""
    from vllm_mods.planning import lock_entries  # noqa: PLC0415  (for who names a base)

    for mod in mods:
        if not lock_entries.places_in(mod, base):
            raise UsageError(
                f"{mod.name} was not made for {base.spec}: there not every hunk stands at its stated line",
                hint="--base TREE with the vLLM that the patch was made from",
            )


def check_mods(mods: Sequence[Mod]) -> None:
    """Raise ``UsageError`` for what is no mod."""
    for mod in mods:
        if not isinstance(mod, Mod):
            raise UsageError(
                f"a mod is wanted, and this is none: {mod!r}", hint='Library().mods("NAME")'
            )
