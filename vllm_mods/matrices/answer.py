"""What one plan said, without the bytes: enough for a cell, for mod.lock and for the cache."""

# Without `from __future__ import annotations`: what is decoded to needs its types when it runs.

from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan, Verdict
from vllm_mods.formats.mod_lock import LockedTree
from vllm_mods.matrices.cell import Cell, HunkView
from vllm_mods.planning import lock_entries


class Answer(NamedTuple):
    """One mod's plan on some tree.

    ``locked`` is what mod.lock has of it where it writes, ``witness`` the digest of what the fit
    rested on, ``offsets`` those of the hunks that moved, ``packages`` the versions of other distributions
    beside the tree that it was planned with, ``left_out`` the optional patches that do not go in, ``hunks`` those beside the source where they are to be shown.
    """

    verdict: Verdict
    variant: str | None = None
    in_range: bool = False
    findings: tuple[Finding, ...] = ()
    offsets: tuple[int, ...] = ()
    locked: LockedTree | None = None
    witness: str = ""
    computed: bool = True
    packages: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    hunks: tuple[HunkView, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether it says anything of the mod: the tree could be had, and read."""
        return self.computed and self.verdict is not Verdict.UNREADABLE


def answer_of(planned: ModPlan) -> Answer:
    """Return what a plan says of one mod."""
    return Answer(
        verdict=planned.verdict,
        variant=planned.variant.id if planned.variant is not None else None,
        in_range=planned.in_range,
        findings=planned.findings,
        offsets=tuple(hunk.offset for hunk in planned.hunks if hunk.offset),
        locked=lock_entries.entry(planned),
        witness=planned.witness,
        left_out=tuple(one.patch for one in planned.optional if not one.verdict.ok),
    )


def failed(message: str, *, computed: bool) -> Answer:
    """Return the answer of a tree that could not be read, or that nobody could look at."""
    code = FindingCode.UNREADABLE if computed else FindingCode.NOT_COMPUTED
    return Answer(Verdict.UNREADABLE, findings=(Finding(code, message),), computed=computed)


def cell_of(mod: Mod, answer: Answer, *, version: str, tree: str, meant: bool) -> Cell:
    """Return an answer as the cell of a mod and a tree."""
    fields = {name: value for name, value in answer._asdict().items() if name in Cell._fields}
    return Cell(mod.name, mod.version, version, tree, meant=meant, **fields)
