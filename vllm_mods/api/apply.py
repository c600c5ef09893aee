"""Mods put into an installed vLLM, whole or not at all."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from collections.abc import Callable, Sequence

from vllm_mods.api.plan import as_tree
from vllm_mods.applying.carry_out import carry_out
from vllm_mods.applying.ground import Terms
from vllm_mods.applying.outcomes import Applied
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.tree import Folder, Tree


def apply(
    mods: Sequence[Mod],
    target: Folder,
    *,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
    keep_links: bool = False,
    source_date_epoch: int | None = None,
    planned: Callable[[Plan], object] | None = None,
    without_files: bool = False,
    base: Tree | Folder | None = None,
    write: bool = True,
) -> Applied:
    """Put mods into an installed vLLM, whole or not at all.

    ``target`` is the site root (``site-packages``), its ``vllm`` folder or one inside that. What an
    earlier run left half done is undone first. ``workspace``, ``strict_version``,
    ``only_supported`` and ``base`` are those of ``plan``. A hard-linked file is replaced by one of this tree's own,
    its other names stay as they are, and a note says so: ``keep_links`` refuses that. ``source_date_epoch``
    (seconds since 1970) is the time of every file written, else now; ``planned`` is called with the plan
    before anything is written. A mod with files that only an image gets is refused, unless ``without_files``
    leaves these out. Without ``write`` nothing is written, and what would be is returned.

    Returns ``Applied``. Raises ``Refused`` with nothing changed: with the plan as its ``plan`` if
    not every mod fits, also for a mod that ``vllm-mods.toml`` here or of the machine does not trust;
    ``NotRestored`` if a failure could not be undone; ``UsageError`` for a target that is no vLLM, and
    whatever else ``plan`` raises.

    >>> mods = vm.Library("library").mods("fast")
    >>> done = vm.apply(mods, "site-packages")
    >>> "vllm/loader.py" in done.changed
    True
    >>> vm.apply(mods, done.target).changed
    ()
    """
    terms = Terms(
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        keep_links=keep_links,
        planned=planned,
        without_files=without_files,
        source_date_epoch=source_date_epoch,
        base=None if base is None else as_tree(base),
        write=write,
    )
    return carry_out(mods, target, terms)
