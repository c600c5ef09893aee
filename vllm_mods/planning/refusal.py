"""Why no variant of a mod goes in, in the words of the one that comes nearest."""

from collections.abc import Sequence

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, HunkState, Level, Mod, ModPlan, Variant, Verdict
from vllm_mods.formats import tree_names
from vllm_mods.planning import carried_parts, patching
from vllm_mods.planning.context import PlanContext


def refused(mod: Mod, verdict: Verdict, *findings: Finding) -> ModPlan:
    """Return the plan of a mod that is refused before a variant is chosen."""
    return ModPlan(mod=mod, variant=None, verdict=verdict, in_range=False, findings=findings)


def unreadable(mod: Mod, error: TreeError) -> ModPlan:
    """Return the plan of a mod on a tree that cannot be read."""
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    return refused(mod, Verdict.UNREADABLE, Finding(code=FindingCode.UNREADABLE, message=message))


def undecided(mod: Mod, good: Sequence[Variant]) -> ModPlan:
    """Return the plan of a mod of which several variants go in."""
    named = " and ".join(f"`{one.id}` ({one.meant})" for one in good)
    message = f"the variants {named} both fit but give different results, and nothing shows which one is meant"
    return refused(mod, Verdict.UNSUPPORTED, Finding(FindingCode.TWO_VARIANTS, message))


def unless_reserved(plan: ModPlan, workspace: str) -> ModPlan:
    """Return a plan unless it is about this tool's own files: a journal, say, that the next command obeys."""
    templates = plan.variant.templates if plan.variant else ()
    names = {f"{workspace}/{template.file}": template.file for template in templates}
    changed = (change.path for change in plan.changes)
    paths = [path for path in changed if tree_names.is_reserved(names.get(path, path))]
    if not paths:
        return plan
    reason = "is reserved for vllm-mods: no mod may write, rename or delete it"
    findings = (Finding(FindingCode.RESERVED, f"{path} {reason}", path=path) for path in paths)
    return refused(plan.mod, Verdict.CONFLICT, *findings)


def nothing_fits(
    context: PlanContext, mod: Mod, inside: Sequence[Variant], failed: Sequence[ModPlan]
) -> ModPlan:
    """Say why none of what was tried fits; ``inside`` are the variants that are meant for the tree."""
    version = context.tree.version
    ranges = ", ".join(f"`{variant.id}` ({variant.meant})" for variant in mod.variants)
    if not failed:
        message = f"no variant covers this version; the variants are {ranges}"
        return refused(mod, Verdict.UNSUPPORTED, Finding(FindingCode.NO_VARIANT, message))
    meant = [tried for tried in failed if tried.variant in inside]
    # A variant that goes in and does not work says more than that it was not meant for the tree.
    unfit = [tried for tried in failed if tried.verdict is Verdict.UNFIT]
    if meant or unfit or version is None:
        best = min(meant or unfit or failed, key=lambda one: len(one.findings))
        plan = patching.add_notes(best, *context.leftovers(_touched(best)))
        return plan if best.verdict is Verdict.UNFIT else _by_part(context, best) or plan
    if not context.as_released(context.by_range(mod)[0], mod):
        half = (one for one in (_by_part(context, tried) for tried in failed) if one)
        if (best_half := next(half, None)) is not None:
            return best_half
    (variant,) = context.nearest(mod)[:1]
    best = next(tried for tried in failed if tried.variant == variant)
    message = f"no variant covers this version, and none fits its source; the variants are {ranges}"
    finding = Finding(FindingCode.NO_VARIANT, message)
    return context.plan_of(mod, best.variant, Verdict.UNSUPPORTED, finding, *best.findings)


def _by_part(context: PlanContext, tried: ModPlan) -> ModPlan | None:
    """Say of a variant that does not go in what the tree carries of it; None if that is nothing."""
    mod, variant = tried.mod, tried.variant
    assert variant is not None  # noqa: S101  (it was tried)
    parts = context.parts(mod, variant)
    states = carried_parts.states(parts, context.view, context.origin(mod, variant))
    inside = [one for one in states if one.state == "carried"]
    if not inside or len(inside) == len(states):
        return None
    rest = patching.forward(tried, carried_parts.without(parts, inside), context.view)
    goes_in = rest.verdict.ok
    labels = ", ".join(_labels(inside, states))
    if context.as_released(variant, mod):
        message = f"the release already has {labels}"
        message += "; the rest applies, so this release needs its own variant" if goes_in else ""
        level = Level.ERROR if goes_in else Level.NOTE
        finding = Finding(FindingCode.CARRIED, message, path=inside[0].path, level=level)
        verdict = Verdict.CONFLICT if goes_in else rest.verdict
    else:
        outside = _labels([one for one in states if one.state != "carried"], states)
        message = f"already applied: {labels}; not applied: {', '.join(outside)}"
        finding = Finding(FindingCode.HALF_APPLIED, message, path=inside[0].path)
        verdict = Verdict.PARTIAL
    errors = () if goes_in else rest.findings
    leftovers = context.leftovers(_touched(tried))
    return context.plan_of(mod, variant, verdict, finding, *errors, *leftovers)


def _labels(some: Sequence[HunkState], every: Sequence[HunkState]) -> list[str]:
    """Name hunks for a person: by their patch where that is one of several and all of it is meant."""
    patches = dict.fromkeys(one.patch for one in every)
    labels = []
    for patch in patches:
        mine = [one for one in some if one.patch == patch]
        whole = len(mine) == sum(one.patch == patch for one in every)
        labels += [patch] if whole and len(patches) > 1 else [one.label for one in mine]
    return labels


def _touched(tried: ModPlan) -> list[str]:
    return sorted({finding.path for finding in tried.findings if finding.path})
