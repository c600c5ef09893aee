"""A matrix as its reports look at it: rows of mods, columns of trees, runs of equal cells. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.model import Verdict
from vllm_mods.matrices.cell import Cell, CellProblem, MatrixResult
from vllm_mods.report.text import MEANING, between, counted, label

MEANINGS = {
    **{verdict.value: meaning for verdict, meaning in MEANING.items()},
    "unknown": "not computed; the findings give the reason",
}
"""What the word of a cell means."""

# What no report can hold: control characters, halves of surrogate pairs (bytes that are not UTF-8),
# noncharacters (not allowed in XML), and marks that change the order in which text is shown.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_NUMBER = re.compile(r"\d+")


class GridRow(NamedTuple):
    """One mod; ``cells`` in the order of the trees."""

    mod: str
    version: str
    cells: tuple[Cell, ...]


class Grid(NamedTuple):
    """A matrix by mods and trees; ``labels`` has a short name for each tree, in their order."""

    rows: tuple[GridRow, ...]
    labels: Mapping[str, str]


class Run(NamedTuple):
    """Neighbouring cells of a mod that say the same; offsets and lines may differ."""

    trees: str
    cells: tuple[Cell, ...]

    @property
    def first(self) -> Cell:
        """The cell that stands for the run."""
        return self.cells[0]

    @property
    def mod(self) -> str:
        """The mod that they are of."""
        return self.first.mod


class Grievance(NamedTuple):
    """Problems of a mod that are one, on one tree or several; ``message`` is of the first."""

    code: str
    mod: str
    trees: tuple[str, ...]
    message: str


def clean(text: str) -> str:
    """Replace each character that could not be shown as it is by U+FFFD; tab and newline stay."""
    return _UNSHOWABLE.sub("\ufffd", text)


def grid(result: MatrixResult) -> Grid:
    """Sort the cells of a matrix into rows and columns, both in the order in which they come."""
    cells = {(cell.mod, cell.tree): cell for cell in result.cells}
    versions = {cell.mod: cell.mod_version for cell in result.cells}
    labels: dict[str, str] = {}
    for cell in result.cells:
        if cell.tree not in labels:
            short = clean(label(cell.tree, cell.version))
            labels[cell.tree] = clean(cell.tree) if short in labels.values() else short
    rows = (
        GridRow(mod, version, tuple(cells[mod, tree] for tree in labels))
        for mod, version in versions.items()
    )
    return Grid(tuple(rows), labels)


def runs(of: Grid, row: GridRow) -> tuple[Run, ...]:
    """Return a mod's cells in runs of one verdict and variant, without the same optional patches."""
    return _runs(of, row.cells, lambda cell: (cell.meant, cell.word, variant(cell), cell.left_out))


def wrong(of: Grid) -> tuple[Run, ...]:
    """Return the cells that should work and do not, in runs of the same findings, whose lines move with each release."""

    def key(cell: Cell) -> object:
        found = [(one.code, _NUMBER.sub("#", one.message)) for one in cell.findings]
        return cell.meant, cell.word, found

    every = (run for row in of.rows for run in _runs(of, row.cells, key))
    return tuple(run for run in every if is_wrong(run.first))


def _runs(of: Grid, cells: Iterable[Cell], key: Callable[[Cell], object]) -> tuple[Run, ...]:
    groups = (tuple(run) for _, run in groupby(cells, key))
    return tuple(Run(between([of.labels[cell.tree] for cell in run]), run) for run in groups)


def is_wrong(cell: Cell) -> bool:
    """Tell whether a cell is not what the mod's ranges say."""
    return cell.meant and not (cell.computed and cell.verdict.ok)


def variant(cell: Cell) -> str:
    """Return the variant that a verdict is about; of those that do not fit, none is."""
    if cell.variant is None or cell.verdict is Verdict.UNSUPPORTED:
        return ""
    return clean(cell.variant)


def headline(of: Grid) -> str:
    """Say how many mods and trees there are, and which."""
    of_which = f", {between(tuple(of.labels.values()))}" if of.labels else ""
    return f"{counted(len(of.rows), 'mod')} on {counted(len(of.labels), 'vLLM tree')}{of_which}"


def spans(of: Grid, trees: Iterable[str]) -> str:
    """Name trees by the stretches of the matrix that they make up."""
    asked = set(trees)
    groups = groupby(of.labels, asked.__contains__)
    known = (between([of.labels[tree] for tree in stretch]) for inside, stretch in groups if inside)
    return ", ".join((*known, *(clean(tree) for tree in sorted(asked - of.labels.keys()))))


def problems(result: MatrixResult) -> tuple[Grievance, ...]:
    """Put together the problems that differ only in the tree, in the order of the first ones."""
    alike: dict[tuple[str, str, str], list[CellProblem]] = {}
    for problem in result.problems:
        message = problem.message
        if problem.tree:
            message = _NUMBER.sub("#", message.replace(problem.tree, ""))
        alike.setdefault((problem.code, problem.mod, message), []).append(problem)
    return tuple(
        Grievance(code, mod, tuple(one.tree for one in found if one.tree), found[0].message)
        for (code, mod, _), found in alike.items()
    )


def problem(of: Grid, grievance: Grievance) -> str:
    """Return a problem as one sentence, with its code."""
    where = f" on {spans(of, grievance.trees)}" if grievance.trees else ""
    return clean(f"{grievance.mod}{where}: {grievance.message} [{grievance.code}]")


def details(run: Iterable[Cell]) -> str:
    """Return the variant, what it is without, the offsets of its hunks, and the packages beside vLLM, in words."""
    cells = tuple(run)
    offsets = [offset for cell in cells for offset in cell.offsets]
    parts = []
    if variant(cells[0]):
        parts.append(f"variant {variant(cells[0])}")
    parts += (f"without {clean(patch)}" for patch in cells[0].left_out)
    if offsets:
        low, high = min(offsets), max(offsets)
        parts.append(f"by {low:+d} lines" if low == high else f"by {low:+d} to {high:+d} lines")
    for name in dict.fromkeys(name for cell in cells for name, _ in cell.packages):
        of = {version for cell in cells for known, version in cell.packages if known == name}
        parts.append(clean(f"with {name} {between(sorted(of, key=versions.sort_key))}"))
    return ", ".join(parts)


def summary(of: Grid) -> str:
    """Return in one sentence whether every mod goes in where its ranges say."""
    meant = [cell for row in of.rows for cell in row.cells if cell.meant]
    bad = sum(is_wrong(cell) for cell in meant)
    if not meant:
        return "None of these trees is in a mod's range, so no mod has to apply."
    if not bad:
        return (
            f"Every mod applies to every release in its ranges: {len(meant)} of {len(meant)} cells."
        )
    return f"{bad} of {len(meant)} cells should work, but do not."
