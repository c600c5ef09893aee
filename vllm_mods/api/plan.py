"""What mods would do to a tree."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from collections.abc import Sequence

from vllm_mods.applying import ground
from vllm_mods.applying.ground import Terms, check_mods, plan_on_ground
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.receipt_tree import receipt_of


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
    named: it tells look-alike places apart, and a three-way merge from there has to agree.

    Returns a ``Plan``: a verdict and the findings for each mod, and the files that would change.
    A mod that does not fit is a verdict, not an error. Raises ``UsageError`` for mods that wait for
    each other in a circle or were not made for the ``base``, ``DiffError`` for a patch that is no good, ``ManifestError`` for a bad
    ``mod.lock``, ``TreeError`` for a tree whose receipt cannot be read, and ``Refused`` for a
    receipt that is damaged.

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


def as_tree(tree: Tree | Folder) -> Tree:
    """Return an opened tree as it is, and open whatever ``open_tree`` takes."""
    return open_tree(tree) if isinstance(tree, str | os.PathLike) else tree
