"""What to do next about a tree, and about mods that do not go into it."""

import shlex
from collections.abc import Sequence

from vllm_mods.base.errors import Refused
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, Plan
from vllm_mods.base.tree import Tree
from vllm_mods.formats import receipt
from vllm_mods.planning import next_step
from vllm_mods.site.undone import Undone
from vllm_mods.trees.packages import reinstalling


def next_command(
    tree: Tree, current: receipt.Receipt | None, undone: Undone, findings: Sequence[Finding]
) -> str:
    """Return the command that puts right what ``verify`` finds wrong with a tree."""
    place = shlex.quote(tree.spec)
    mods, files = (current.mods, current.files) if current else ((), ())
    names = " ".join(one.name for one in mods)
    folder = current and current.workspace
    space = f" --workspace {shlex.quote(folder)}" if folder else ""
    apply_again = f"vllm-mods apply {names} --target {place}{space}"
    errors = [one for one in findings if one.level is Level.ERROR]
    codes = {one.code for one in errors}
    lost = {one.path for one in errors if one.code == FindingCode.MISSING} - undone.paths
    records = {one.path for one in files if one.kind == receipt.RECORD}
    if "unfinished" in codes:  # each of these undoes it first, and then has nothing to do
        return apply_again if names else f"vllm-mods revert --target {place}"
    if undone.paths and not undone.edited:
        return apply_again
    if codes == {"stale-bytecode"}:
        stale = (f"{tree.root}/{one.path}" for one in errors)
        return f"rm {' '.join(map(shlex.quote, stale))}"
    if codes & {"original-missing", "original-damaged", "unreadable"} or lost & records:
        return f"{reinstalling(tree, tree.version)}  # then apply again"
    return next_step.drop_edits(tree.spec)


def left_out(plan: Plan, *, allowed: bool) -> list[str]:
    """Say which files of mods that would go in are not written. Raises ``Refused`` unless that is ``allowed``."""
    going_in = [one.mod for one in plan.mods if one.verdict.writes]
    files = [f"{mod.name}: {file.path}" for mod in going_in for file in mod.files]
    lines = [f"{file} is outside Python's packages; only an image can hold it" for file in files]
    if not lines or allowed:
        return [f"{line}; not written" for line in lines]
    head = f"nothing was changed in {plan.spec}: the mods have files that only an image can hold"
    why = "\n  ".join((head, *lines))
    hint = "`vllm-mods build PAIRING` puts them into an image; --without-files applies the mods without these files"
    raise Refused(why, hint=hint)


def refusal(plan: Plan, tree: Tree, notes: Sequence[str]) -> Refused:
    """Say why nothing was done, in terms of each mod that does not go in."""
    said = "".join(f"{note}; " for note in notes)
    head = f"{said}nothing was changed in vLLM {plan.version or 'of unknown version'} ({plan.spec})"
    return Refused("\n".join((head, *reasons(plan))), hint=next_step.hint(plan, tree), plan=plan)


def reasons(plan: Plan) -> list[str]:
    """Return a line for each mod that does not go in, and below it why."""
    lines = []
    for mod_plan in plan.mods:
        if not mod_plan.verdict.ok:
            lines.append(f"  {mod_plan.mod.title}: {mod_plan.verdict.value}")
            lines += [f"    {finding}" for finding in mod_plan.findings]
    return lines
