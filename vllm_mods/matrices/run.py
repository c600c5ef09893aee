"""A whole matrix: what is known is taken as it is, the rest is spread over workers."""

import os
from collections.abc import Callable, Iterable, Sequence

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.matrices.cell import Cell, Computed, cell_of
from vllm_mods.matrices.spread import outcomes
from vllm_mods.matrices.work import Task, Workshop, is_meant
from vllm_mods.trees.index import release_file

Progress = Callable[[int, int], None]


def compute(
    workshop: Workshop, specs: Sequence[str], jobs: int, progress: Progress | None = None
) -> tuple[Computed, ...]:
    """Answer for every mod alone on every tree, in the order of ``specs``.

    ``jobs`` processes share what is not known. ``progress`` is told how many of how many answers there are. Raises
    ``UsageError`` for a bad patch, and for a named tree that is none.
    """
    mods = [mod.name for mod in workshop.setting.mods]
    found = {spec: workshop.known(spec) for spec in specs}
    unknown = {spec: tuple(mod for mod in mods if mod not in found[spec].answers) for spec in specs}
    tasks = [Task(spec, left) for spec, left in unknown.items() if left]
    total = len(specs) * len(mods)
    done = total - sum(len(task.mods) for task in tasks)
    if progress is not None and tasks:
        progress(done, total)
    for one in outcomes(tasks, workshop, jobs):
        if one.fault is not None:
            message, hint = one.fault
            raise UsageError(message, hint=hint)
        before = found[one.spec]
        found[one.spec] = Computed(
            one.spec, before.version or one.version, before.answers | one.answers
        )
        done += len(one.answers)
        if progress is not None:
            progress(done, total)
    return tuple(found.values())


def cells(mods: Sequence[Mod], computed: Iterable[Computed]) -> tuple[Cell, ...]:
    """Return the cells of what was computed, tree by tree."""
    return tuple(
        cell_of(
            mod,
            one.answers[mod.name],
            version=version,
            tree=one.spec,
            # If the tree is unreadable and its version unknown, keep the cell: reporting too much is safer.
            meant=is_meant(mod, version) or (one.version is None and version == "unknown"),
        )
        for one in computed
        for version in (one.version or named_version(one.spec),)
        for mod in mods
    )


def named_version(spec: str) -> str:
    """Return the version that the name of a release or of its file has in it, else ``unknown``."""
    kind, _, name = spec.partition(":")
    if kind not in {"pypi", "wheel", "sdist"}:
        return "unknown"
    file = release_file(os.path.basename(name), "")
    return file.version if file is not None else (name if kind == "pypi" else "unknown")
