"""What mods would do to a tree, and whether they fit it and a checkpoint that it is to serve."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.applying import ground
from vllm_mods.applying.ground import Terms, check_mods, plan_on_ground
from vllm_mods.base.model import Finding, Mod, Plan
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.checkpoints.model_fit import ModelFit
from vllm_mods.planning import next_step
from vllm_mods.trees.beside import unmet
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.open import as_tree
from vllm_mods.trees.receipt_tree import receipt_of


class CheckResult(NamedTuple):
    """What ``check`` found: the ``plan`` of a ``tree``, and how the mods fit a ``model``, None without one.

    ``beside`` are packages of an installed vLLM that it does not take; they decide nothing of the mods.
    """

    tree: Tree
    plan: Plan
    model: ModelFit | None = None
    beside: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every mod would end up in the tree, and is meant for the checkpoint."""
        return self.plan.ok and (self.model is None or self.model.ok)

    @property
    def hint(self) -> str | None:
        """The command that helps where not all is well, None where none is known."""
        if self.plan.ok:
            return None if self.ok or self.model is None else f"vllm-mods suggest {self.model.name}"
        return next_step.hint(self.plan, self.tree)


def plan(
    mods: Sequence[Mod],
    tree: Tree | Folder,
    *,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
    base: Tree | Folder | None = None,
) -> Plan:
    """Return what mods would do to a tree, and whether they fit it. Nothing is written.

    ``mods`` are those of ``Library.mods``; ``tree`` is a path or whatever else ``open_tree`` takes
    (``pypi:0.21.0``), or an opened ``Tree``. ``workspace`` is the folder that chat templates go to; with
    ``strict_version`` a variant is taken only on the vLLM versions that it states; ``only_supported``
    leaves out mods that have no variant for this tree. ``base`` is the vLLM that the mods were made for, as ``tree`` is
    named: it helps to tell look-alike places apart, and a three-way merge from there has to agree.

    Returns a ``Plan``: a verdict and the findings for each mod, and the files that would change. A mod that does not
    fit is a verdict, not an error. Raises ``UsageError`` for mods that wait for each other in a circle or were not made
    for the ``base``, ``DiffError`` for a patch that is no good, ``ManifestError`` for a bad ``mod.lock``, ``TreeError``
    for a tree whose receipt cannot be read, and ``Refused`` for a receipt that is damaged.

    >>> planned = vm.plan(vm.Library("library").mods("fast"), "site-packages")
    >>> planned.ok, [change.path for change in planned.changes]
    (True, ['vllm/loader.py'])
    """
    check_mods(mods)
    opened = as_tree(tree)
    receipt = receipt_of(opened)
    space = os.path.realpath(workspace) if workspace else receipt.workspace if receipt else None
    if opened.root is not None and opened.workspace is None:
        opened = FolderTree(opened.root, spec=opened.spec, workspace=space)
    made_for = None if base is None else as_tree(base)
    terms = Terms(strict_version=strict_version, only_supported=only_supported, base=made_for)
    return plan_on_ground(mods, ground.of(opened, receipt), space, terms).shown


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
    result = CheckResult(opened, planned, beside=_beside(opened))
    if model is None:
        return result
    from vllm_mods.checkpoints import fitting  # noqa: PLC0415  (where one is named)

    return result._replace(model=fitting.of_model(mods, model, revision))


def _beside(tree: Tree) -> tuple[Finding, ...]:
    if tree.root is None and not tree.spec.startswith("image:"):
        return ()
    return tuple(found for found, _ in unmet(tree))
