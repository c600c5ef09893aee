"""A mod's patches cut anew, without changing what they do."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from typing import NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import check_own_mod
from vllm_mods.base.errors import UsageError
from vllm_mods.library.catalog import Library
from vllm_mods.porting import recut, writing


class Refreshed(NamedTuple):
    """The paths of the patches of a ``variant`` that were rewritten, proven on these ``releases``."""

    variant: str
    wrote: tuple[str, ...]
    releases: tuple[str, ...]


def refresh(
    library: Library, name: str, variant: str | None = None, *, access: Access | None = None
) -> tuple[Refreshed, ...]:
    """Cut the patches of a mod of one's own library anew: line numbers, context and section headers.

    ``variant`` is the only one that is meant, without it all that have patches. Every release that
    ``mod.lock`` records has to get the same bytes as before. Raises ``UsageError`` for a variant without patches.
    """
    access = access or Access()
    mod = library.load(name)
    check_own_mod(library, mod)
    variants = [one for one in mod.variants if one.patches and variant in {None, one.id}]
    if not variants:
        known = ", ".join(one.id for one in mod.variants if one.patches)
        what = f"no variant `{variant}` with patches" if variant else "no patches"
        raise UsageError(f"{name} has {what}", hint=f"--variant {known}" if known else None)
    results = []
    for refreshed in variants:
        cut = recut.run(mod, refreshed, access.releases.open, library.roots)
        if cut.files:
            writing.overwrite(mod, cut.files)
            mod = library.load(name)
        patches = sorted(cut.files.keys() & {patch.source for patch in refreshed.patches})
        wrote = tuple(os.path.join(mod.directory, patch) for patch in patches)
        results.append(Refreshed(refreshed.id, wrote, tuple(cut.releases)))
    return tuple(results)
