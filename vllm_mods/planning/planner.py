"""The one function: mods and a tree in, verdicts and changes out.

Reads bytes from the tree and nothing else; writes nothing, prints nothing, imports
no vLLM. ``check``, ``apply``, ``matrix`` are views of what it returns.
"""

import graphlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods import fit
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import (
    Finding,
    HunkState,
    Mod,
    ModPlan,
    OptionalPatch,
    Plan,
    Variant,
    Verdict,
    all_well,
)
from vllm_mods.base.tree import Tree
from vllm_mods.formats.mod_lock import LockedTree
from vllm_mods.formats.receipt import Receipt
from vllm_mods.planning import (
    applied,
    carried_parts,
    known_trees,
    lock_entries,
    outside,
    patching,
    refusal,
    requirements,
    written,
)
from vllm_mods.planning.context import Origin, PlanContext, ask_for_packages
from vllm_mods.planning.next_step import update_lock

if TYPE_CHECKING:
    from vllm_mods.fit.world import SummaryCache

WORKSPACE = known_trees.WORKSPACE


def plan(
    mods: Sequence[Mod],
    tree: Tree,
    *,
    receipt: Receipt | None = None,
    workspace: str = WORKSPACE,
    strict_version: bool = False,
    cache: "SummaryCache | None" = None,
    origin: Origin | None = None,
) -> Plan:
    """Plan mods, in an order that respects ``requires`` and ``after``, onto one tree.

    ``receipt`` is what earlier applies left in the tree, ``workspace`` the folder that
    chat templates go to, ``cache`` what the fit derived from files of other trees, ``origin`` gives the
    tree that a variant was written for, where it can be had: a merge from there has to agree. A mod that
    does not go in leaves the others as they would be without it. Raises ``UsageError`` for mods that wait
    for each other in a circle and ``DiffError`` for a patch that is no good, whatever the tree.
    """
    context = PlanContext(tree, receipt, workspace, origin)
    return _Planner(context, cache, strict_version=strict_version).plan(_in_order(mods))


def plan_alone(
    mod: Mod, tree: Tree, *variants: Variant, cache: "SummaryCache | None" = None
) -> ModPlan:
    """Plan a mod as if alone, with ``variants`` in place of its own, if any. Raises as ``plan``."""
    alone = mod._replace(requires=(), conflicts=(), after=())
    if variants:
        alone = lock_entries.with_variants(alone, variants)
    return plan([alone], tree, cache=cache).mods[0]


def hunk_states(mod: Mod, variant: Variant, tree: Tree) -> tuple[HunkState, ...]:
    """Tell of each hunk of a variant whether a tree carries it."""
    locked = lock_entries.current(mod)
    known = written.of_variant(locked.written if locked else (), variant)
    parts = patching.parts_of(mod, variant, WORKSPACE)
    return carried_parts.states(written.attach(parts, known), tree)


class _Planner(NamedTuple):
    context: PlanContext
    cache: "SummaryCache | None"
    strict_version: bool

    def plan(self, mods: tuple[Mod, ...]) -> Plan:
        ask_for_packages(mods, self.context.tree)
        stale = {mod.name for mod in mods if not self.context.take_lock(mod)}
        present = applied.find(self.context, mods)
        inside = {} if len(present) == len(mods) else applied.conflicts(self.context)
        done: dict[str, ModPlan] = {}
        for mod in mods:
            if mod.name in present:
                plan = present[mod.name]
            elif objections := tuple(_objections(mod, mods, done, inside)):
                plan = refusal.refused(mod, Verdict.CONFLICT, *objections)
            else:
                plan = refusal.unless_reserved(self.put_in(mod), self.context.workspace)
                plan = outside.judge(plan, self.context.workspace)
            plan = requirements.judge(plan, self.context.tree)
            if mod.name in stale:
                message = f"mod.lock is not used, because {mod.name} was changed later; `{update_lock(mod)}` writes mod.lock again"
                plan = patching.add_notes(plan, patching.note(FindingCode.STALE_LOCK, message))
            if plan.verdict.writes:
                self.context.put_in(plan)
            done[mod.name] = plan
        tree = self.context.tree
        return Plan(tree.spec, tree.version, tuple(done.values()), self.context.view.changes())

    def put_in(self, mod: Mod) -> ModPlan:
        context = self.context
        locked = context.locks.get(mod.name)
        states = known_trees.states(locked, context.view, context.workspace) if locked else ()
        for tree in states:
            vouched = self.vouched(mod, tree)
            if vouched is not None and not (self.strict_version and not vouched.in_range):
                return vouched
        try:
            chosen = self.choose(mod)
            # a release that has it in other words takes it a second time, or is said to be in conflict
            return applied.find_carried(context, mod) or chosen
        except TreeError as error:
            return refusal.unreadable(mod, error)

    def vouched(self, mod: Mod, tree: LockedTree) -> ModPlan | None:
        if known_trees.witness(tree.beside, self.context.view) not in tree.witness:
            return None  # the fit was asked beside other files
        variant = next(variant for variant in mod.variants if variant.id == tree.variant)
        parts = self.context.parts(mod, variant, vouched=True)
        done = known_trees.place(tree, parts, self.context.view, self.context.workspace)
        if done is None:
            return None
        changes, placed = done
        optional = [patch.source for patch in variant.patches if patch.optional]
        verdict, findings = patching.as_placed(placed), patching.notes(placed, changes)
        tried = self.context.plan_of(mod, variant, verdict, *findings)._replace(
            changes=changes,
            hunks=placed,
            vouched=True,
            beside=tree.beside,
            proof=tree.proof,
            unexamined=fit.UNEXAMINED if tree.proof else (),
            optional=tuple(OptionalPatch(source, verdict) for source in optional),
        )
        return self.finish(tried, variant)

    def choose(self, mod: Mod) -> ModPlan:
        """Try every variant against the tree's bytes; the range only orders the tries."""
        variants = self.context.by_range(mod)
        inside = [variant for variant in variants if self.context.in_range(mod, variant)]
        outside = [variant for variant in variants if variant not in inside]
        failed: list[ModPlan] = []
        for group in (inside,) if self.strict_version else (inside, outside):
            tries = {variant: self.attempt(mod, variant) for variant in group}
            good = {variant: one for variant, one in tries.items() if one.verdict.ok}
            each = (one.changes for one in good.values())
            results = {tuple((one.path, sha256(one.after)) for one in changes) for changes in each}
            if len(results) > 1:
                return refusal.undecided(mod, [*good])
            if good:
                exact = (one for one in good if good[one].verdict is Verdict.APPLIES)
                best = next(exact, next(iter(good)))
                leftovers = self.context.leftovers(one.path for one in good[best].changes)
                return self.finish(good[best], best, *leftovers)
            failed += tries.values()
        return refusal.nothing_fits(self.context, mod, inside, failed)

    def attempt(self, mod: Mod, variant: Variant) -> ModPlan:
        parts = self.context.located(mod, variant)
        plan = self.context.plan_of(mod, variant, Verdict.CONFLICT)
        view, old, changed_by = self.context.view, self.context.untouched, self.context.changed_by
        tried = patching.forward(plan, parts, view, beneath=old, changed_by=changed_by)
        if not tried.verdict.ok:
            return tried
        near = variant in self.context.nearest(mod)
        tree = self.context.origin(mod, variant) if near else None
        origin: fit.AtOrigin | None = None
        if tree is not None:
            at_base = tuple(part._replace(at_base=True) for part in parts)
            at_origin = patching.forward(plan, at_base, tree)
            against = carried_parts.disagreement(tried, at_origin, tree.version)
            if against is not None:
                return plan._replace(verdict=Verdict.MISPLACED, findings=(against,))
            origin = fit.AtOrigin(tree, at_origin.changes)
        looked = fit.fit(tried.changes, view, allow=variant.allow, cache=self.cache, origin=origin)
        if not all_well(looked.findings):
            tried = plan._replace(verdict=Verdict.UNFIT)
        return patching.add_notes(tried, *looked.findings)._replace(
            beside=looked.beside, proof=looked.proof, unexamined=looked.unexamined
        )

    def finish(self, tried: ModPlan, variant: Variant, *leftovers: Finding) -> ModPlan:
        more = (*leftovers, *self.context.notes(tried.mod, variant))
        return patching.add_notes(tried, *more)._replace(
            witness=known_trees.witness(tried.beside, self.context.view),
            optional=tuple(self.optional_patches(tried, variant)),
        )

    def optional_patches(self, tried: ModPlan, variant: Variant) -> Iterator[OptionalPatch]:
        """Yield the optional patches; one that is in as released is upstream's."""
        for patch in tried.optional:
            is_in = patch.verdict is Verdict.APPLIED
            released = is_in and self.context.as_released(variant, tried.mod)
            yield patch._replace(verdict=Verdict.UPSTREAM) if released else patch


def _in_order(mods: Sequence[Mod]) -> tuple[Mod, ...]:
    """Sort mods so that each follows what it ``requires`` and is ``after``; else as given."""
    names = {mod.name: mod for mod in mods}
    others = {mod.name: (*mod.requires, *mod.after) for mod in mods}
    waits = {mod: [name for name in before if name in names] for mod, before in others.items()}
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError as error:
        why = f"`requires` and `after` of these mods form a cycle: {' → '.join(reversed(error.args[1]))}"
        hint = "remove one `requires` or `after` from their manifests"
        raise UsageError(why, hint=hint) from None
    done: dict[str, Mod] = {}

    def take(name: str) -> None:
        if name not in done:
            for other in waits[name]:
                take(other)
            done[name] = names[name]

    for name in waits:
        take(name)
    return tuple(done.values())


def _objections(
    mod: Mod, mods: Sequence[Mod], done: Mapping[str, ModPlan], applied: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    """Yield why a mod cannot go in beside the others, whatever the tree.

    ``mods`` are all that were asked for, ``done`` what became of those before this one,
    ``applied`` those that are in the tree already, each with the names in its ``conflicts``.
    """
    for other in mods:
        if other.name != mod.name and (other.name in mod.conflicts or mod.name in other.conflicts):
            message = f"{mod.name} and {other.name} cannot be combined: the manifest of one lists the other under `conflicts`"
            yield Finding(FindingCode.CONFLICTING_MOD, message)
    asked = {other.name for other in mods}
    for name, others in applied.items():
        if name not in asked and (name in mod.conflicts or mod.name in others):
            message = f"{mod.name} cannot be combined with {name}, which is applied"
            yield Finding(FindingCode.CONFLICTING_MOD, message)
    for name in mod.requires:
        if name in done and not done[name].verdict.ok:
            message = f"{mod.name} requires {name}, which does not apply (`{done[name].verdict}`)"
            yield Finding(FindingCode.REQUIRED_MOD, message)
        elif name not in done and name not in applied:
            message = f"{mod.name} requires {name}, which is not applied"
            yield Finding(FindingCode.REQUIRED_MOD, message)
