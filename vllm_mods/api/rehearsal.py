"""What ``apply`` would do to an installed vLLM, up to the first write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vllm_mods.api.apply import Folder, decided, opened, refusing, templates_of
from vllm_mods.api.outcomes import Applied
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Mod, Plan
from vllm_mods.library import trust
from vllm_mods.site import transaction


def rehearse(
    mods: Sequence[Mod],
    target: Folder,
    *,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
    keep_links: bool = False,
    planned: Callable[[Plan], object] | None = None,
) -> Applied:
    """Return what ``apply`` would, and raise what it would refuse; write nothing.

    A tree in which an earlier run was interrupted is refused: only undoing that tells what is there.
    """
    trust.demand(mods)
    notes: list[str] = []
    with refusing():
        tree, there = opened(target, workspace, recovering=None)
        if there.unfinished is not None:
            raise Refused(
                f"{tree.spec}: an earlier run was interrupted here; apply would undo that first",
                hint=f"vllm-mods status --target {tree.spec}",
            )
        made, wanted = decided(
            mods,
            tree,
            there,
            notes,
            strict_version=strict_version,
            only_supported=only_supported,
            planned=planned,
        )
        if wanted is None:
            return Applied(tree.root, made, (), tuple(notes), templates_of(tree))
        outcome = transaction.rehearse(
            tree.root, wanted, workspace=tree.workspace, keep_links=keep_links, known=there
        )
    notes += outcome.notes
    return Applied(tree.root, made, outcome.changed, tuple(notes), templates_of(tree))
