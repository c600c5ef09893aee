"""A vLLM that holds exactly the mods that the project names for it, as they are locked."""

import os
from collections.abc import Callable
from typing import NamedTuple

from vllm_mods.api.libraries import Chosen
from vllm_mods.applying.carry_out import Exactly, hold
from vllm_mods.applying.ground import Terms
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Plan
from vllm_mods.base.tree import Folder
from vllm_mods.formats.project import ProjectFile, SyncTarget
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.sharing import changing, locking


class Synced(NamedTuple):
    """What ``sync`` did, or with ``write=False`` would do, to the ``target`` that the file ``project`` names."""

    project: str
    target: SyncTarget
    done: Exactly

    @property
    def settled(self) -> bool:
        """Whether nothing had to be done."""
        return self.done.settled


def fetch() -> ProjectFile:
    """Have the libraries of the project here on this machine, as they are locked, and return the project."""
    project = changing.read_project()
    locking.open_shared(project, fetching=True)
    return project


def sync(
    name: str | None = None,
    target: Folder | None = None,
    *,
    default_target: Callable[[], str] | None = None,
    workspace: Folder | None = None,
    source_date_epoch: int | None = None,
    planned: Callable[[Plan, Chosen], object] = lambda _plan, _chosen: None,
    write: bool = True,
) -> Synced:
    r"""Make a vLLM hold exactly the mods that ``vllm-mods.toml`` names, as ``vllm-mods.lock`` has them.

    ``name`` is a target of the file; without it the one named ``default``, or the only one. ``target`` is
    the vLLM, without it the target's own ``path``, else what ``default_target`` returns. ``workspace`` and
    ``source_date_epoch`` are those of ``apply``; ``planned`` is called with the plan and what it is of before
    anything is written; without ``write`` nothing is.

    Libraries are fetched as they are locked. Returns ``Synced``: what goes out, comes in, was renewed. Raises
    ``UsageError`` for a project or a target that there is not, and as ``apply`` does.

    >>> _ = Path("vllm-mods.toml").write_text('schema = 1\n[targets.default]\npath = "site-packages"\nmods = []\n')
    >>> vm.sync(write=False).settled
    True
    """
    project = changing.read_project()
    library = Library(shared=locking.open_shared(project, fetching=True))
    wanted = _choose_target(project, name)
    paired = None if wanted.pairing is None else library.pairing(wanted.pairing)
    names = (*(() if paired is None else library.mods_of(paired)), *wanted.mods)
    chosen = Chosen(library.select(names), paired)
    if wanted.pairing is not None:
        trust.demand_pairing(library, wanted.pairing)
    stated = wanted.path and os.path.expanduser(wanted.path)
    own = stated and os.path.join(os.path.dirname(project.where), stated)
    place = target or own or (default_target and default_target())
    if place is None:
        why = f"{project.where} names no path for the target `{wanted.name}`"
        raise UsageError(why, hint='--target DIR, or path = "DIR" in that target')
    terms = Terms(
        workspace,
        planned=lambda plan: planned(plan, chosen),
        source_date_epoch=source_date_epoch,
        write=write,
    )
    return Synced(project.where, wanted, hold(chosen.mods, place, terms))


def _choose_target(project: ProjectFile, name: str | None) -> SyncTarget:
    """Return the target that is named; else the default one, or the only one. Raises ``UsageError``."""
    targets = {target.name: target for target in project.targets}
    if name is None and len(targets) == 1:
        return project.targets[0]
    target = targets.get(name or changing.DEFAULT)
    if target is None:
        known = f": it has {', '.join(targets)}" * bool(targets)
        advice = 'add the table [targets.default] with a line mods = ["LIBRARY/MOD"]'
        why = f"{project.where} has no target named `{name or changing.DEFAULT}`{known}"
        raise UsageError(why, hint=f"vllm-mods sync {next(iter(targets))}" if targets else advice)
    return target
