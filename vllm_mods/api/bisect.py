"""The commit at which a mod's verdict changes."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from vllm_mods.api.libraries import find_variant
from vllm_mods.library.catalog import Library
from vllm_mods.matrices import bisect as searching
from vllm_mods.matrices.bisect import BisectOutcome
from vllm_mods.planning import lock_entries


def bisect(
    library: Library,
    mod: str,
    good: str,
    bad: str,
    *,
    repo: str,
    variant: str | None = None,
) -> BisectOutcome:
    """Find the commit of a clone of vLLM's repository at which a mod's verdict changes.

    ``mod`` is the name of one of the ``library``; ``good`` is the older revision of the clone's
    folder ``repo``, ``bad`` the newer one; commits along first parents are searched, and nothing is checked
    out. ``variant`` asks for that variant of the mod alone.

    Returns a ``BisectOutcome``: ``ok`` if the verdict changes between them, and the neighbours ``before``
    and ``after`` the change. Raises ``UsageError`` for ends between which there is nothing, ``TreeError``
    for a tree that cannot be read.

    >>> vm.bisect(vm.Library("library"), "fast", "v1", "v2", repo="site-packages")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: ...
    """
    mods = library.select((mod,))
    if variant is not None:
        alone = lock_entries.with_variants(mods[-1], (find_variant(mods[-1], variant),))
        mods = (*mods[:-1], alone)
    from vllm_mods.trees.git import Repository  # noqa: PLC0415  (raises where there is no git)

    return searching.over_commits(mods, Repository(repo), good, bad)
