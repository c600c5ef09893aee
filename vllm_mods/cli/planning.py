"""From what was typed to a plan: the part that ``check`` and ``apply`` share."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from vllm_mods import plan, receipt
from vllm_mods.errors import UsageError
from vllm_mods.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.library import Library
    from vllm_mods.model import ModPlan, Plan, Tree


def plan_for(
    library: Library,
    names: Sequence[str],
    tree: Tree,
    *,
    workspace: str | None,
    strict_version: bool,
    only_supported: bool,
) -> tuple[Plan, tuple[ModPlan, ...]]:
    """Plan the named mods, or the default ones; also return those that were left out."""
    chosen = tuple(names) or library.defaults()
    if not chosen:
        raise UsageError("no mod is named, and none is marked as default", hint="vllm-mods list")
    mods = library.select(chosen)
    raw = tree.read(f"{receipt.STATE}/receipt.json") if not tree.remote else None
    there = receipt.parse(raw) if raw is not None else None
    folder = os.path.abspath(workspace) if workspace else plan.WORKSPACE

    planned = plan.plan(mods, tree, receipt=there, workspace=folder, strict_version=strict_version)
    left_out: tuple[ModPlan, ...] = ()
    if only_supported:
        left_out = tuple(one for one in planned.mods if one.verdict is Verdict.UNSUPPORTED)
        if left_out:
            kept = [one.mod for one in planned.mods if one.verdict is not Verdict.UNSUPPORTED]
            planned = plan.plan(
                kept, tree, receipt=there, workspace=folder, strict_version=strict_version
            )
    return replace(planned), left_out


def say_left_out(left_out: Sequence[ModPlan]) -> None:
    """Name what --only-supported left out."""
    for one in left_out:
        click.echo(f"left out: {one.mod.name} is unsupported on this tree", err=True)
