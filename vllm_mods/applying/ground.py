"""What a plan starts from: a tree with its receipt, or what an installer has left of what mods did to it."""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, Mod, ModPlan, Plan, Variant, Verdict
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import Receipt
from vllm_mods.library import packed_mod
from vllm_mods.planning import lock_entries, planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.site import transitions, undone
from vllm_mods.site.undone import Undone
from vllm_mods.trees import receipt_tree


class Ground(NamedTuple):
    """A tree, its receipt, and what an installer has undone of that.

    Where it has undone something, and nobody has edited the rest, plans are made of ``bare``, the tree
    without any mod, and ``stay`` are the mods that are in whole: they are planned anew beside the others.
    """

    tree: Tree
    receipt: Receipt | None
    undone: Undone = Undone()
    bare: Tree | None = None
    stay: tuple[Mod, ...] = ()

    @property
    def left(self) -> Receipt:
        """What still holds of the receipt."""
        assert self.receipt is not None  # noqa: S101  (nothing is undone without one)
        if not self.undone.paths:
            return self.receipt
        return receipt.without(self.receipt, self.undone.paths)._replace(vllm=self.tree.version)


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


class Planned(NamedTuple):
    """A plan of the mods that were asked for, and of all that are in afterwards."""

    shown: Plan
    whole: Plan


def of(tree: Tree, current: Receipt | None) -> Ground:
    """Look at a tree with the receipt ``current``. Raises ``Refused`` for a mod that was not kept in it."""
    gone = Undone() if current is None else undone.look(current, tree)
    ground = Ground(tree, current, gone)
    if current is None or not gone.paths or gone.edited:
        return ground
    out = set(gone.mods(current))
    stay = {mod.name: mod for mod in staying(tree, current, out)}
    while more := {name for name, mod in stay.items() if out.intersection(mod.requires)} - out:
        out |= more
    bare = receipt_tree.pristine(tree, ground.left)
    left = tuple(mod for name, mod in stay.items() if name not in out)
    return ground._replace(bare=bare, stay=left)


def plan_on_ground(mods: Sequence[Mod], base: Ground, space: str | None, terms: Terms) -> Planned:
    """Plan mods on a tree as it stands. Raises ``UsageError`` for a base that one of them was not made for."""
    origin = None
    if (made_for := terms.base) is not None:
        check_base(mods, made_for)
        origin = lambda _mod, _variant: made_for  # noqa: E731

    folder = space or planner.WORKSPACE
    make_plan = functools.partial(
        planner.plan, workspace=folder, strict_version=terms.strict_version, origin=origin
    )
    result = _plan(base, mods, make_plan)
    out = {one.mod.name for one in result.shown.mods if one.verdict is Verdict.UNSUPPORTED}
    if terms.only_supported and out:
        return _plan(base, [mod for mod in mods if mod.name not in out], make_plan)
    return result


def check_base(mods: Sequence[Mod], base: Tree) -> None:
    """Raise ``UsageError`` for a mod none of whose variants was made for a tree."""
    for mod in mods:
        if not lock_entries.places_in(mod, base):
            why = f"{mod.name} was not made for {base.spec}: not every hunk matches there at its stated line"
            raise UsageError(why, hint="--base TREE, the vLLM that the patch was made on")


def check_mods(mods: Sequence[Mod]) -> None:
    """Raise ``UsageError`` for what is no mod, and for two of one name."""
    named: dict[str, Mod] = {}
    for mod in mods:
        if not isinstance(mod, Mod):
            raise UsageError(f"this is not a mod: {mod!r}", hint='Library().mods("NAME")')
        if named.setdefault(mod.name, mod).digest != mod.digest:
            why = f"two of these mods are named {mod.name}, and a tree can hold only one of them"
            raise UsageError(why, hint="rename one of them")


def _plan(ground: Ground, mods: Sequence[Mod], make_plan: Callable[..., Plan]) -> Planned:
    """Plan mods on what is there, those that stay with them."""
    if ground.bare is None or ground.receipt is None:
        planned = make_plan(mods, ground.tree, receipt=ground.receipt)
        planned = replace(planned, mods=tuple(_beside_edits(one, ground) for one in planned.mods))
        return Planned(planned, planned)
    stay = {mod.name for mod in ground.stay}
    first = make_plan(ground.stay, ground.bare)
    kept = tuple(one for one in ground.left.mods if one.name in stay)
    coming = [mod for mod in mods if mod.name not in stay]
    below = LayeredTree(ground.bare, first.changes)
    second = make_plan(coming, below, receipt=ground.left._replace(mods=kept))
    net = LayeredTree(ground.bare, (*first.changes, *second.changes)).changes()
    whole = replace(second, mods=(*first.mods, *second.mods), changes=net)
    again = [mod for mod in mods if mod.name in stay]
    on_tree = make_plan(again, ground.tree, receipt=ground.receipt)
    others = (one for one in whole.mods if one.mod.name not in stay or not one.verdict.ok)
    named = {one.mod.name: one for one in (*on_tree.mods, *others)}
    for name in ground.undone.mods(ground.receipt):
        if name in named:
            message = f"{name} was applied, but a later installation of vLLM undid it"
            finding = Finding(FindingCode.UNDONE, message, level=Level.NOTE)
            named[name] = named[name]._replace(findings=(*named[name].findings, finding))
    changes = tuple(one for one in whole.changes if ground.tree.read(one.path) != one.after)
    return Planned(Plan(ground.tree.spec, ground.tree.version, (*named.values(),), changes), whole)


def transition(ground: Ground, whole: Plan, root: str) -> transitions.Transition:
    """Return what brings a tree in which mods were undone to what a plan of its ``bare`` form says."""
    result = transitions.revert_transition(root, ground.left, forward(whole, None))
    return result._replace(undone=ground.undone.paths, aside=undone.free_name(root))


def forward(plan: Plan, applied: Receipt | None) -> transitions.Transition:
    """Return what brings a tree to what a plan says; with each mod is kept what proves its places, for when it is planned anew."""
    return transitions.forward(plan, applied, lock_entries.proven)


def notes(ground: Ground, plan: Plan, done: transitions.Transition) -> tuple[str, ...]:
    """Say what became of the mods that an installer had undone."""
    assert ground.receipt is not None  # noqa: S101  (nothing is undone without one)
    named = {one.mod.name for one in plan.mods}
    stay = {mod.name for mod in ground.stay}
    gone = [one.name for one in ground.receipt.mods if one.name not in stay]
    what = f"{', '.join(gone)} was undone when vLLM was installed again"
    lines = [f"{what}; the old originals are now in {done.aside} and can be removed"]
    if out := [name for name in gone if name not in named]:
        lines.append(
            f"the same installation undid {', '.join(out)}; to apply again: vllm-mods apply {' '.join(out)} --target {plan.spec}"
        )
    return tuple(lines)


def staying(tree: Tree, current: Receipt, gone: Collection[str]) -> tuple[Mod, ...]:
    """Read the mods of a receipt without some, as they were when they went in.

    What one of them requires and no receipt names, the release had itself then: it is asked for no more.
    """
    names = {entry.name for entry in current.mods}
    mods = [(entry, kept_mod(tree, entry.name)) for entry in current.mods if entry.name not in gone]
    return tuple(
        mod._replace(
            requires=tuple(name for name in mod.requires if name in names),
            # what it changes outside of vLLM was agreed to when it went in
            outside=tuple(file.path for file in entry.files),
        )
        for entry, mod in mods
    )


def kept_mod(tree: Tree, name: str) -> Mod:
    """Read a mod as it was when it went in. Raises ``Refused`` if that cannot be had."""
    mod = packed_mod.kept_mod(tree, name)
    if mod is None:
        why = f"{tree.spec}: {receipt.kept(name)} is gone, and no other change can be made while {name} stays applied without it; nothing was changed"
        raise Refused(why, hint=f"vllm-mods revert --target {tree.spec}  # removes all mods")
    return mod


def variants_in(tree: Tree, current: Receipt | None) -> Iterator[Variant]:
    """Yield the variants that went into a tree, of the mods that it has kept."""
    for entry in current.mods if current is not None else ():
        mod = packed_mod.kept_mod(tree, entry.name)
        yield from (one for one in (mod.variants if mod else ()) if one.id == entry.variant)


def _beside_edits(mod_plan: ModPlan, ground: Ground) -> ModPlan:
    """Return the plan of a mod, refused where it would give up what was edited after mods were applied."""
    name, edited = mod_plan.mod.name, ground.undone.edited
    if ground.receipt is not None and edited and name in ground.undone.mods(ground.receipt):
        message = f"{name} was undone when vLLM was installed again, and applying the mod again would lose edits to these files"
    else:
        edited = tuple(one.path for one in mod_plan.changes if one.path in edited)
        message = f"{name} changes files that were edited after other mods were applied to them"
    if not edited or not mod_plan.verdict.ok:
        return mod_plan
    message += f": {', '.join(edited)}"
    finding = Finding(FindingCode.CHANGED_SINCE, message, path=edited[0])
    return mod_plan._replace(verdict=Verdict.PARTIAL, findings=(finding,))
