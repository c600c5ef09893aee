"""Mods planned on what is there, on the caller's terms. Nothing is written."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.applying import ground
from vllm_mods.applying.ground import Ground, Planned
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod, Plan, Verdict
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.formats.receipt import Receipt
from vllm_mods.planning import planner


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
