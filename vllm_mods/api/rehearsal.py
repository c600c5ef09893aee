"""What ``apply`` would do to an installed vLLM, up to the first write."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_mods.api.apply import Folder, Terms, decided, opened, templates_of
from vllm_mods.api.outcomes import Applied
from vllm_mods.base.errors import Refused, refusing
from vllm_mods.base.model import Mod
from vllm_mods.library import trust
from vllm_mods.site import transaction


def rehearse(mods: Sequence[Mod], target: Folder, terms: Terms) -> Applied:
    """Return what ``apply`` would, and raise what it would refuse; write nothing.

    A tree in which an earlier run was interrupted is refused: only undoing that tells what is there.
    """
    trust.demand(mods)
    notes: list[str] = []
    with refusing():
        tree, there = opened(target, terms.workspace, recovering=None)
        if there.unfinished is not None:
            raise Refused(
                f"{tree.spec}: an earlier run was interrupted here; apply would undo that first",
                hint=f"vllm-mods status --target {tree.spec}",
            )
        made, wanted = decided(mods, tree, there, notes, terms)
        if wanted is None:
            return Applied(tree.root, made, (), tuple(notes), templates_of(tree))
        outcome = transaction.rehearse(
            tree.root, wanted, workspace=tree.workspace, keep_links=terms.keep_links, known=there
        )
    notes += outcome.notes
    return Applied(tree.root, made, outcome.changed, tuple(notes), templates_of(tree))
