"""A matrix in one call: mods on trees, in this process unless more are asked for."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from collections.abc import Callable, Mapping, Sequence

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.model import Mod
from vllm_mods.matrices import choose, ranges, run, spread, work
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.trees.other_packages import asked_for


def matrix(
    mods: Sequence[Mod],
    trees: Sequence[str] = (),
    *,
    vllm: str | None = None,
    pre: bool = False,
    offline: bool = False,
    jobs: int = 1,
    kept: bool = True,
    progress: Callable[[int, int], None] | None = None,
    note: Callable[[str], None] | None = None,
    others: Mapping[str, str] | None = None,
) -> MatrixResult:
    """Plan each mod alone on each tree, and each two mods that meet there together.

    ``mods`` are those of ``Library.mods``, ``trees`` what ``open_tree`` takes, and also folders of
    wheels and ``git:REPO@REV1..REV2``. Without trees, the releases that ``vllm`` (a PEP 440
    specifier) names, or else every one that a mod's ranges name and the newest three beyond;
    pre-releases with ``pre``. ``offline`` opens no connection, ``kept`` says whether answers of
    earlier runs may be used and are kept, ``progress`` is called with how many of how many cells
    are done, ``note`` with each thing one should know. ``others`` are versions of other packages, by
    name, to be read beside releases, wheels and sdists; without it, those that a release took. More than one of ``jobs`` starts processes,
    and then a script has to stand behind ``if __name__ == "__main__"``.

    Returns ``cells`` (mod, tree, version, variant, verdict, findings, and whether the mod is
    ``meant`` for it), tree by tree; ``together``, what is known of two mods; and ``problems``,
    ranges that the trees contradict. A tree that cannot be read is a cell ``unreadable``. Raises
    ``UsageError`` for a named tree that is none, a package that no mod changes and a bad patch.

    >>> grid = vm.matrix(vm.Library("library").mods("fast", "stale"), ["site-packages"])
    >>> [(cell.mod, cell.version, cell.verdict.value) for cell in grid.cells]
    [('fast', '0.19.1', 'applies'), ('stale', '0.19.1', 'conflict')]
    """
    chosen = tuple(mods)
    named = asked_for(others or {}, chosen)
    setting = work.Setting(
        chosen, cache_folder(os.environ), offline=offline, store=kept, others=named
    )
    workshop = work.Workshop(setting, note=note)
    specs = choose.specs(workshop.releases.files, chosen, trees, vllm, pre=pre)
    local = spread.local(jobs, workshop)
    asked = run.Matrix(workshop, setting, local, named=frozenset(trees), progress=progress)
    computed = asked.compute(specs)
    cells = run.cells(chosen, computed)
    problems = ranges.range_problems(chosen, cells)
    result = MatrixResult(cells, asked.together(computed), problems, mods=chosen)
    workshop.sweep()
    return result
