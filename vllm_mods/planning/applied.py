"""Which mods a tree has already: by the receipt, or by their reversed hunks."""

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan, Variant, Verdict
from vllm_mods.formats.receipt import Receipt, ReceiptMod
from vllm_mods.library.packed_mod import kept_mod
from vllm_mods.planning import carried_parts, known_trees, patching
from vllm_mods.planning.context import PlanContext
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.next_step import library_option
from vllm_mods.planning.patching import note
from vllm_mods.planning.refusal import unreadable


def find(context: PlanContext, mods: tuple[Mod, ...]) -> dict[str, ModPlan]:
    """Find the mods that are in, from the last one down.

    A mod can be seen only while nothing later covers its lines, so each one found is
    taken out (of a copy, in memory) before the next one is looked for.
    """
    plans: dict[str, ModPlan] = {}
    bare = LayeredTree(context.tree)
    for mod in reversed(mods):
        try:
            present = _present(context, mod, bare)
        except TreeError as error:
            present = unreadable(mod, error)
        if present is not None:
            plans[mod.name] = present
    return plans


def conflicts(context: PlanContext) -> dict[str, tuple[str, ...]]:
    """Return the ``conflicts`` of each mod that the receipt names, as it was when it went in."""
    entries = context.receipt.mods if context.receipt is not None else ()
    inside = {entry.name: kept_mod(context.tree, entry.name) for entry in entries}
    return {name: mod.conflicts if mod is not None else () for name, mod in inside.items()}


def find_carried(context: PlanContext, mod: Mod) -> ModPlan | None:
    """Return the plan of a mod that the merge from its origin shows to be in, else None."""
    for variant in context.nearest(mod):
        parts, origin = context.located(mod, variant), context.origin(mod, variant)
        inside = carried_parts.carried_parts(parts, origin, context.view) if origin else ()
        if len(inside) == len(parts) > 0:
            return _inside(context, mod, variant)
    return None


def _present(context: PlanContext, mod: Mod, bare: LayeredTree) -> ModPlan | None:
    """Return the plan of a mod that is in, and take it out of ``bare``; None if it is not."""
    receipt = context.receipt
    entry = receipt.mod(mod.name) if receipt else None
    if receipt is not None and entry is not None:
        return _by_receipt(context, mod, receipt, entry)
    locked = context.locks.get(mod.name)
    if locked is not None and next(known_trees.states(locked, bare, context.workspace), None):
        return None
    for variant in context.by_range(mod):
        back = patching.backward(context.located(mod, variant), bare)
        if back is not None:
            bare.lay(back)
            return _inside(context, mod, variant)
    return None


def _by_receipt(context: PlanContext, mod: Mod, receipt: Receipt, entry: ReceiptMod) -> ModPlan:
    variant = next((one for one in mod.variants if one.id == entry.variant), None)
    if entry.digest != mod.digest:
        what = f"{entry.name} {entry.version} is applied, not {mod.version}"
        if entry.version == mod.version:
            what = f"another build of {entry.name} {entry.version} is applied"
        digests = f"digest {entry.digest[:12]}, not {mod.digest[:12]}"
        message = f"{what} ({digests}); revert the applied mod first"
        finding = Finding(FindingCode.OTHER_VERSION, message)
        return context.plan_of(mod, variant, Verdict.CONFLICT, finding)
    # a file that one mod brings and a later one removes has no entry of its own
    final = {file.path: file.after for one in receipt.mods for file in one.files}
    final |= {file.path: file.after for file in receipt.files}
    meant = {file.path: final[file.path] for file in entry.files}
    edited = [path for path, after in meant.items() if sha256(context.tree.read(path)) != after]
    if not edited:
        return context.plan_of(mod, variant, Verdict.APPLIED)
    message = f"these files were changed after the mod was applied: {', '.join(edited)}"
    finding = Finding(FindingCode.CHANGED_SINCE, message, path=edited[0])
    return context.plan_of(mod, variant, Verdict.PARTIAL, finding)


def _inside(context: PlanContext, mod: Mod, variant: Variant) -> ModPlan:
    """Build the plan of a mod that is in without a receipt: by hand, or by the release itself."""
    if _is_released(context, mod, variant):
        message = f"this release already has the change: {mod.name} is not needed"
        return context.plan_of(mod, variant, Verdict.UPSTREAM, note(FindingCode.UPSTREAM, message))
    paths = {part.path for part in context.parts(mod, variant)}
    others = sorted({name for path in paths for name in context.changed_by.get(path, ())})
    message = f"every change is already there, but no receipt records that vllm-mods applied it; `vllm-mods matrix {mod.name}{library_option(mod)}` shows which releases already have the change"
    if others:
        message = f"the changes are already there, perhaps from {' or '.join(others)}. If so, reverting {'that mod' if len(others) == 1 else 'these mods'} removes them too"
    return context.plan_of(mod, variant, Verdict.APPLIED, note(FindingCode.NO_RECEIPT, message))


def _is_released(context: PlanContext, mod: Mod, variant: Variant) -> bool:
    """Tell whether the files that a mod is in are as the distribution shipped them.

    RECORD says so of what this tool changed too, so it is believed only beside a receipt, of the
    files that the receipt does not name.
    """
    if not context.tree.pristine:
        if context.receipt is None:
            return False
        paths = {part.path for part in context.parts(mod, variant)}
        touched = {file.path for file in context.receipt.files}
        if paths & touched or None in map(context.tree.read, paths):
            return False
    return context.as_released(variant, mod)
