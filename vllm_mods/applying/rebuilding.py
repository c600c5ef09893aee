"""From a tree in which mods were undone, or from which some are taken out, to what a plan of its untouched form says."""

from __future__ import annotations

from vllm_mods.applying.ground import Ground
from vllm_mods.base.model import Plan
from vllm_mods.formats.receipt import Receipt
from vllm_mods.site import transitions, undone
from vllm_mods.site.operations import Transition


def transition(ground: Ground, whole: Plan, root: str) -> Transition:
    """Return what brings a tree in which mods were undone to what a plan of its ``bare`` form says."""
    assert ground.receipt is not None  # noqa: S101  (nothing is undone without one)
    result = anew(root, ground.left, whole)
    return result._replace(undone=ground.undone.paths, aside=undone.free_name(root))


def anew(root: str, current: Receipt, plan: Plan, *, discard_edits: bool = False) -> Transition:
    """Return what brings a tree to what a plan of its untouched form says."""
    forward = transitions.forward(plan, None)
    return transitions.revert_transition(
        root,
        current,
        mods=forward.mods,
        changes=plan.changes,
        sources=forward.sources,
        discard_edits=discard_edits,
    )


def notes(ground: Ground, plan: Plan, done: Transition) -> tuple[str, ...]:
    """Say what became of the mods that an installer had undone."""
    assert ground.receipt is not None  # noqa: S101  (nothing is undone without one)
    named = {one.mod.name for one in plan.mods}
    stay = {mod.name for mod in ground.stay}
    gone = [one.name for one in ground.receipt.mods if one.name not in stay]
    what = f"{', '.join(gone)} had been undone by another installation of vLLM"
    lines = [f"{what}; what was kept of that is in {done.aside} now, and may be removed"]
    if out := [name for name in gone if name not in named]:
        lines.append(
            f"{', '.join(out)} is not in any more: vllm-mods apply {' '.join(out)} --target {plan.spec}"
        )
    return tuple(lines)
