"""Plans of one mod on a tree in memory, and what tests ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_tree import MemoryTree

from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    from vllm_mods.base.model import Finding, Mod, ModPlan

PATH = "vllm/x.py"


def tree(text: str, **more: Any) -> MemoryTree:
    """Return a tree of one file, ``PATH``."""
    return MemoryTree({PATH: text.encode()}, **more)


def one(mod: Mod, tree: MemoryTree, **more: Any) -> ModPlan:
    return plan([mod], tree, **more).mods[0]


def codes(planned: ModPlan) -> set[str]:
    return {finding.code for finding in planned.findings}


def found(planned: ModPlan, code: str) -> Finding:
    """Return the one finding of that code."""
    (finding,) = (finding for finding in planned.findings if finding.code == code)
    return finding


def after(planned: ModPlan, path: str = PATH) -> str:
    change = next(change for change in planned.changes if change.path == path)
    return (change.after or b"").decode()
