"""The libraries of the project that holds here, as far as they are on this machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from vllm_mods.library import project_file

if TYPE_CHECKING:
    from vllm_mods.library.catalog import Shared
    from vllm_mods.sharing.locking import NotFetched


def opened(note: Callable[[str], None]) -> tuple[tuple[Shared, ...], Callable[[bool], None]]:
    """Return those that are here, and what a ``Library`` asks about those that are not.

    A name that is found without them means the same with them, or is refused then as one of several: so
    that is said once, by ``note``, and a list of all names is refused. Raises as ``locking.shared`` does.
    """
    shared: tuple[Shared, ...] = ()
    missing: list[NotFetched] = []
    project = project_file.find()
    if project is not None and project.libraries:
        from vllm_mods.sharing import locking  # noqa: PLC0415  (where there are any)

        shared = locking.shared(project, missing=missing)

    @functools.cache
    def absent(needed: bool) -> None:  # noqa: FBT001
        if needed and missing:
            raise missing[0]
        for one in missing:
            note(f"{one.message}: {one.hint}")

    return shared, absent
