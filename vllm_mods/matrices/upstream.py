"""Which of a mod's hunks a release carries itself, and from which release on the mod can go.

A release carries a mod whole where ``plan`` says ``upstream``, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, HunkState, Mod, ModPlan, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.formats.receipt import Receipt
from vllm_mods.matrices import choose, work
from vllm_mods.planning import planner
from vllm_mods.planning.context import Origin
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.trees.index import ReleaseFile


class UpstreamRow(NamedTuple):
    """A mod on one tree: ``version`` is vLLM's, ``tree`` the spec, ``meant`` that a range names it.

    ``hunks`` are those of the plan's variant, none where no variant came into it.
    """

    version: str
    tree: str
    planned: ModPlan
    meant: bool
    hunks: tuple[HunkState, ...] = ()

    @property
    def carried(self) -> bool:
        """Whether the release carries the whole mod."""
        return self.planned.verdict is Verdict.UPSTREAM

    @property
    def in_pieces(self) -> bool:
        """Whether the release carries each hunk by itself, and not the whole mod: in another order, say."""
        return not self.planned.verdict.ok and {one.state for one in self.hunks} == {"carried"}


def releases(mod: Mod, files: Sequence[ReleaseFile], spec: str | None) -> tuple[str, ...]:
    """Return the releases to look at, oldest first: those of ``spec``, else all from the first meant."""
    named = {file.version for file in files if work.is_meant(mod, file.version)}
    if spec is None and named:
        spec = f">={min(named, key=versions.sort_key)}"
    return choose.choose_releases([mod], files, spec)


def rows(
    mods: Sequence[Mod],
    specs: Iterable[str],
    opener: Callable[[str], Tree],
    receipt_of: Callable[[Tree], Receipt | None],
    origin: Origin | None = None,
) -> Iterator[UpstreamRow]:
    """Look at the last of the mods, which requires those before it, on each tree.

    ``origin`` gives the tree that a variant was written for, as for ``plan``.

    A tree that cannot be read is ``unreadable`` and stops nothing.
    """
    cache = SummaryCache()
    mod = mods[-1]
    for spec in specs:
        version = spec.removeprefix("pypi:")
        meant = True  # of what cannot be read, nobody can say that it is not
        try:
            tree = opener(spec)
            version = tree.version or "unknown"
            meant = work.is_meant(mod, tree.version)
            whole = planner.plan(mods, tree, receipt=receipt_of(tree), cache=cache, origin=origin)
            planned = next(one for one in whole.mods if one.mod.name == mod.name)
            others = [one for one in whole.mods if one is not planned and one.verdict.writes]
            below = LayeredTree(tree, [change for one in others for change in one.changes])
            hunks = planner.hunk_states(planned, below, origin)
        except TreeError as error:
            finding = Finding(code=FindingCode.UNREADABLE, message=error.message)
            planned = ModPlan(mod, None, Verdict.UNREADABLE, in_range=False, findings=(finding,))
            hunks = ()
        yield UpstreamRow(version, spec, planned, meant, hunks)


def can_go(rows: Sequence[UpstreamRow]) -> UpstreamRow | None:
    """Return the first row from which on every one carries the mod whole."""
    first = None
    for row in reversed(rows):
        if not row.carried:
            break
        first = row
    return first


def is_needed(rows: Sequence[UpstreamRow]) -> bool:
    """Tell whether some tree that the mod is meant for, or any if it is for none, lacks it."""
    meant = [row for row in rows if row.meant] or rows
    return not all(row.carried for row in meant)
