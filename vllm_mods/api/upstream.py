"""Which hunks of a mod releases carry themselves, and from which one on the mod can go."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.base.errors import UsageError
from vllm_mods.library.catalog import Library
from vllm_mods.matrices import upstream as carried
from vllm_mods.matrices.upstream import UpstreamRow
from vllm_mods.planning.origins import Origins
from vllm_mods.trees.receipt_tree import receipt_of


class Carried(NamedTuple):
    """What releases carry of a mod: a row per tree, oldest first."""

    rows: tuple[UpstreamRow, ...]

    @property
    def needed(self) -> bool:
        """Whether some tree that the mod is meant for does not carry it whole."""
        return carried.is_needed(self.rows)


def upstream(
    library: Library,
    mod: str,
    trees: Sequence[str] = (),
    *,
    vllm: str | None = None,
    access: Access | None = None,
) -> Carried:
    """Tell which hunks of a mod releases carry themselves, and whether it is still needed.

    ``mod`` is the name of one of the ``library``. ``trees``, oldest first, are what ``open_tree`` takes; without
    them the releases in the range ``vllm``, or every one from the first that the mod's ranges name.

    Returns ``Carried``: ``needed``, and ``rows`` with a verdict and the hunks for each tree. A tree that cannot
    be read is ``unreadable``. Raises ``UsageError`` for a range without releases.

    >>> carried = vm.upstream(vm.Library("good"), "fast", ["site-packages"])
    >>> carried.needed, [(hunk.label, hunk.state) for hunk in carried.rows[0].hunks]
    (True, [('vllm/loader.py', 'placed')])
    """
    access = access or Access()
    mods = library.select((mod,))
    specs = trees or carried.releases(mods[-1], access.releases.files(), vllm)
    if not specs:
        raise UsageError(f"no release is in {vllm}", hint="such as --vllm '>=0.19'")
    rows = carried.rows(mods, specs, access.open, receipt_of, Origins(access.releases))
    return Carried(tuple(rows))
