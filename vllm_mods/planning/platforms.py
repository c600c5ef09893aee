"""Prebuilt code of a variant (``binary``), held against the platform of the tree. Pure."""

from __future__ import annotations

from vllm_mods.base.model import Finding, ModPlan, Tree, Variant, Verdict
from vllm_mods.planning.patching import note

AMD64 = "linux/amd64"


def of(tree: Tree) -> str | None:
    """Return the platform of a tree: what it says, else that which releases are read for; None for a folder that says none."""
    known: str | None = getattr(tree, "platform", None)
    return known or (AMD64 if tree.pristine else None)


def judged(one: ModPlan, platform: str | None) -> ModPlan:
    """Refuse a mod that has no build of a file for the platform of the tree; say where that is not known."""
    variant = one.variant
    if variant is None or not variant.binary or not one.verdict.writes:
        return one
    lacking = [] if platform is None else _lacking(variant, platform)
    if lacking:
        built = ", ".join(dict.fromkeys(file.platform for file in variant.binary))
        message = f"{', '.join(lacking)}: built for {built}, and this vLLM is for {platform}"
        found = Finding("platform", message, path=lacking[0])
        return one._replace(
            verdict=Verdict.UNFIT, changes=(), hunks=(), findings=(*one.findings, found)
        )
    if platform is not None:
        return one
    named = sorted({file.platform for file in variant.binary})
    paths = dict.fromkeys(file.path for file in variant.binary)
    message = f"{', '.join(paths)}: built for {', '.join(named)}, and nothing in this tree says what it is for"
    if len(named) == 1:
        return one._replace(findings=(*one.findings, note("platform", message)))
    found = Finding("platform", message, path=next(iter(paths)))
    return one._replace(
        verdict=Verdict.UNFIT, changes=(), hunks=(), findings=(*one.findings, found)
    )


def _lacking(variant: Variant, platform: str) -> list[str]:
    built = {file.path for file in variant.binary if file.platform == platform}
    return [
        path for path in dict.fromkeys(file.path for file in variant.binary) if path not in built
    ]
