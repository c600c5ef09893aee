"""Prebuilt code of a variant (``binary``), held against the platform of the tree. Pure."""

from __future__ import annotations

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, ModPlan, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.planning.patching import add_notes, note, refuse

AMD64 = "linux/amd64"


def of(tree: Tree) -> str | None:
    """Return the platform of a tree: what it says, else that which releases are read for; None for a folder that says none."""
    return tree.platform or (AMD64 if tree.pristine else None)


def judge(plan: ModPlan, tree: Tree) -> ModPlan:
    """Refuse a mod that has no build of a file for the platform of the tree; say where that is not known."""
    variant = plan.variant
    if variant is None or not variant.binary or not plan.verdict.writes:
        return plan
    platform = of(tree)
    named = sorted({file.platform for file in variant.binary})
    matching = {file.path for file in variant.binary if file.platform == platform}
    paths = dict.fromkeys(file.path for file in variant.binary)
    lacking = [path for path in paths if path not in matching]
    if not lacking:
        return plan
    why = f"this vLLM is for {platform}" if platform else "nothing in this tree says what it is for"
    message = f"{', '.join(lacking)}: built for {', '.join(named)}, and {why}"
    if platform is None and len(named) == 1:
        return add_notes(plan, note(FindingCode.PLATFORM, message))
    return refuse(plan, Verdict.UNFIT, Finding(FindingCode.PLATFORM, message, path=lacking[0]))
