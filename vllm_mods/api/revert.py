"""Mods taken out of an installed vLLM again."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from vllm_mods.applying.carry_out import remove
from vllm_mods.applying.outcomes import Reverted
from vllm_mods.base.tree import Folder


def revert(
    target: Folder,
    *names: str,
    discard_edits: bool = False,
    source_date_epoch: int | None = None,
) -> Reverted:
    """Take mods out again, by name, or all of them; the others stay as if these had never been in.

    With all of them out, every byte, mode and time is as before the first ``apply``. What an earlier
    run left half done is undone first. With ``discard_edits`` also where a file was edited since;
    ``target`` and ``source_date_epoch`` are those of ``apply``.

    Returns ``Reverted``. Raises ``UsageError`` for a mod that is not in, ``Refused`` with nothing
    changed (a file was edited since, a mod that stays needs one that goes), ``NotRestored`` if a
    failure could not be undone.

    >>> vm.apply(vm.Library("library").mods("fast", "limit"), "site-packages").plan.ok
    True
    >>> vm.revert("site-packages", "fast").reverted
    ('fast',)
    >>> [mod.name for mod in vm.status("site-packages").mods]
    ['limit']
    >>> vm.revert("site-packages").mods
    ()
    """
    return remove(target, names, discard_edits=discard_edits, source_date_epoch=source_date_epoch)
