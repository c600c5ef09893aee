"""A whole matrix: what is known is taken as it is, the rest is spread over workers."""

from collections.abc import Callable, Sequence

from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.spread import outcomes
from vllm_mods.matrices.work import Task, Workshop

Progress = Callable[[int, int], None]


def compute(
    workshop: Workshop, specs: Sequence[str], jobs: int, progress: Progress | None = None
) -> tuple[Cell, ...]:
    """Answer for every mod alone on every tree, tree by tree in the order of ``specs``.

    ``jobs`` processes share what is not known. ``progress`` is told how many of how many cells there are. Raises
    ``UsageError`` for a bad patch, and for a named tree that is none.
    """
    mods = [mod.name for mod in workshop.setting.mods]
    found = {(spec, cell.mod): cell for spec in specs for cell in workshop.known(spec)}
    unknown = {spec: tuple(mod for mod in mods if (spec, mod) not in found) for spec in specs}
    tasks = [Task(spec, left) for spec, left in unknown.items() if left]
    total = len(specs) * len(mods)
    if progress is not None and tasks:
        progress(len(found), total)
    for cells in outcomes(tasks, workshop, jobs):
        found.update(((cell.tree, cell.mod), cell) for cell in cells)
        if progress is not None:
            progress(len(found), total)
    return tuple(found[spec, mod] for spec in specs for mod in mods)
