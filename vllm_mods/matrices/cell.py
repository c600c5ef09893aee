"""What a matrix says, as plain data: it crosses processes, lies in the cache and feeds the reports."""

# Without `from __future__ import annotations`: what is decoded to needs its types when it runs.

from collections.abc import Mapping
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, Mod, ModPlan, Verdict
from vllm_mods.formats.mod_lock import LockedTree
from vllm_mods.planning import lock_entries


class HunkView(NamedTuple):
    """A hunk beside the target.

    ``line`` is the 1-based line in the target where its text is, or the nearest to it; None where
    nothing is like it. Without ``proof`` it has no place. ``lines`` are the hunk's with `` ``,
    ``-`` or ``+`` in front, ``target`` the numbered lines of the target around that place: the
    hunk's extent and three beside.
    """

    patch: str
    path: str
    number: int
    scope: str | None
    line: int | None
    offset: int | None
    proof: str | None
    lines: tuple[str, ...]
    target: tuple[tuple[int, str], ...]


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


class Computed(NamedTuple):
    """A tree and the answers of mods on it; ``version`` is vLLM's, if the tree says one.

    ``fault`` is what is wrong with the call, and a hint: a named spec that is no tree, or a bad patch of a mod. It is data: not every
    exception survives pickling.
    """

    spec: str
    version: str | None
    answers: dict[str, Answer]
    fault: tuple[str, str | None] | None = None


class Cell(NamedTuple):
    """One mod on one tree.

    ``version`` is vLLM's, ``tree`` the spec it was opened by; ``in_range`` says that the variant's
    range names this version, ``meant`` that some variant's does. ``offsets`` are how many lines
    each moved hunk is from its stated line, in order. Not ``computed`` means that nobody could
    compute it now (no network and nothing kept, a worker that died twice): the findings say why.
    ``packages`` are names and versions of what the mod was planned with beside vLLM, ``left_out`` optional patches that do not go in.

    >>> (cell,) = vm.matrix(vm.Library("library").mods("fast"), ["site-packages"]).cells
    >>> cell.mod, cell.version, cell.variant, cell.meant
    ('fast', '0.19.1', 'a', True)
    """

    mod: str
    mod_version: str
    version: str
    tree: str
    variant: str | None
    verdict: Verdict
    in_range: bool
    meant: bool
    findings: tuple[Finding, ...] = ()
    offsets: tuple[int, ...] = ()
    computed: bool = True
    packages: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The one word for a cell: its verdict, if there is one."""
        return self.verdict.value if self.computed else "unknown"


class CellProblem(NamedTuple):
    """Something that is not as a mod's manifest or its committed lock says.

    ``code`` is ``range-too-wide``, ``range-too-narrow`` (a note), ``needs-port``, ``stale-lock``,
    ``worse-than-baseline`` or ``needless``.
    """

    code: FindingCode
    mod: str
    tree: str | None
    message: str
    level: Level = Level.ERROR


class ClientLine(NamedTuple):
    """From which release on a client of a mod's chat template works, in words."""

    mod: str
    text: str


class MatrixResult(NamedTuple):
    """A whole matrix: ``cells`` tree by tree in the order asked for, and what follows from them.

    ``problems`` are what is not as a manifest or a committed lock says, ``mods`` what the cells are of. A
    ``strict`` one is not ``ok`` for a problem alone that is an error. ``hunks`` are those of cells, by mod and tree, and
    ``clients`` those of chat templates, where they were asked for. ``computed`` are the answers that locks are made of.

    >>> grid = vm.matrix(vm.Library("library").mods("stale"), ["site-packages"])
    >>> grid.ok, grid.cells[0].verdict.value
    (False, 'conflict')
    """

    cells: tuple[Cell, ...]
    problems: tuple[CellProblem, ...] = ()
    mods: tuple[Mod, ...] = ()
    strict: bool = False
    hunks: Mapping[tuple[str, str], tuple[HunkView, ...]] = {}
    clients: tuple[ClientLine, ...] = ()
    computed: tuple[Computed, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every mod would end up in every tree that it is meant for."""
        good = all(cell.verdict.ok for cell in self.cells if cell.meant)
        wrong = any(problem.level is Level.ERROR for problem in self.problems)
        return good and not (self.strict and wrong)


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
