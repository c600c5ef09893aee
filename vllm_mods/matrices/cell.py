"""What a matrix says, as plain data: it crosses processes, lies in the cache and feeds the reports."""

# Without `from __future__ import annotations`: what is decoded to needs its types when it runs.

from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level, Mod, Verdict
from vllm_mods.formats.mod_lock import LockedTree


class HunkView(NamedTuple):
    """A hunk beside the target.

    ``line`` is the 1-based line in the target where its text is, or the nearest to it; None where nothing is
    like it. Without ``proof`` it has no place. ``lines`` are the hunk's with `` ``, ``-`` or ``+`` in front,
    ``target`` the numbered lines of the target around that place: the hunk's extent and three beside.
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


class Cell(NamedTuple):
    """One mod on one tree.

    ``version`` is vLLM's, ``tree`` the spec it was opened by; ``in_range`` says that the variant's range names this
    version, ``meant`` that some variant's does. ``offsets`` are how many lines each moved hunk is from its stated line,
    in order. Not ``computed`` means that nobody could compute it now (no network and nothing kept, a worker that died
    twice): the findings say why. ``packages`` are names and versions of what the mod was planned with beside vLLM,
    ``left_out`` optional patches that do not go in. ``locked`` is what mod.lock has of it where it writes, ``witness``
    the digest of what the fit rested on, ``hunks`` are those beside the source where they are to be shown.

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
    locked: LockedTree | None = None
    witness: str = ""
    hunks: tuple[HunkView, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether it says anything of the mod: the tree could be had, and read."""
        return self.computed and self.verdict is not Verdict.UNREADABLE

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
    ``strict`` one is not ``ok`` for a problem alone that is an error. ``clients`` are those of chat templates, where they
    were asked for.

    >>> grid = vm.matrix(vm.Library("library").mods("stale"), ["site-packages"])
    >>> grid.ok, grid.cells[0].verdict.value
    (False, 'conflict')
    """

    cells: tuple[Cell, ...]
    problems: tuple[CellProblem, ...] = ()
    mods: tuple[Mod, ...] = ()
    strict: bool = False
    clients: tuple[ClientLine, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every mod would end up in every tree that it is meant for."""
        good = all(cell.verdict.ok for cell in self.cells if cell.meant)
        wrong = any(problem.level is Level.ERROR for problem in self.problems)
        return good and not (self.strict and wrong)
