"""Whether mods fit a tree, and a checkpoint that it is to serve."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.api.plan import as_tree, plan
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.checkpoints.checkpoint import ModelFit


class CheckResult(NamedTuple):
    """What ``check`` found: the ``plan`` of a ``tree``, and how the mods fit a ``model``, None without one."""

    tree: Tree
    plan: Plan
    model: ModelFit | None = None

    @property
    def ok(self) -> bool:
        """Whether every mod would end up in the tree, and is meant for the checkpoint."""
        return self.plan.ok and (self.model is None or self.model.ok)

    @property
    def hint(self) -> str | None:
        """The command that helps where not all is well, None where none is known."""
        if self.plan.ok:
            return None if self.ok or self.model is None else f"vllm-mods suggest {self.model.name}"
        from vllm_mods.planning.next_step import hint  # noqa: PLC0415

        return hint(self.plan, self.tree)


def check(
    mods: Sequence[Mod],
    tree: Tree | Folder,
    *,
    model: str | None = None,
    revision: str | None = None,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
    base: Tree | Folder | None = None,
) -> CheckResult:
    """Plan mods on a tree, and hold them against a checkpoint. Nothing is written.

    ``model`` is a checkpoint's folder or its id on the Hub, of the commit, tag or branch ``revision``;
    the other arguments are those of ``plan``.

    Returns ``CheckResult``. Raises as ``plan`` does, ``UsageError`` for a model that is none, and
    ``Unreachable`` where the Hub cannot be asked for it.

    >>> checked = vm.check(vm.Library("library").mods("fast"), "site-packages")
    >>> checked.ok, checked.plan.mods[0].verdict.value, checked.hint
    (True, 'applies', None)
    """
    opened = as_tree(tree)
    planned = plan(
        mods,
        opened,
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        base=base,
    )
    if model is None:
        return CheckResult(opened, planned)
    from vllm_mods.checkpoints import fitting  # noqa: PLC0415  (where one is named)

    return CheckResult(opened, planned, fitting.of_model(mods, model, revision))
