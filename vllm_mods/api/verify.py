"""Whether what mods put into a tree is still as they left it, and what a node has."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from collections.abc import Mapping

from vllm_mods.applying import ground
from vllm_mods.applying.opening import in_tree, open_tree
from vllm_mods.applying.outcomes import Verified, of_mods
from vllm_mods.base.tree import Folder
from vllm_mods.formats.receipt import Receipt
from vllm_mods.site import integrity


def verify(target: Folder, *names: str) -> Verified:
    """Tell whether what mods put into a tree is still as they left it. Nothing is written.

    ``target`` is that of ``apply``; with ``names``, only what these mods changed. Returns
    ``Verified``: ``ok``, and findings that say what is not as it was; who changed it cannot be known.
    A tree without mods is as it was. Raises as ``status`` does, and ``UsageError`` for a mod that is
    not in.

    >>> vm.apply(vm.Library("library").mods("fast"), "site-packages").plan.ok
    True
    >>> vm.verify("site-packages").ok
    True
    >>> Path("site-packages/vllm/loader.py").unlink()
    >>> [(str(found.code), found.path) for found in vm.verify("site-packages").findings]
    [('missing', 'vllm/loader.py'), ('record-disagrees', 'vllm/loader.py')]
    """
    tree, state = open_tree(target, None, recovering=None)
    names = in_tree(names, state, tree)
    findings = integrity.findings(state, integrity.undone_in(state).paths)
    mods = tuple(entry for entry in state.mods if not names or entry.name in names)
    if names:
        findings = of_mods(findings, mods)
    return Verified(tree.root, tree.version, mods, findings)


def node_of(target: Folder) -> tuple[Receipt | None, Mapping[str, str]]:
    """Return a tree's receipt, None where no mods are in, and the installed versions of the packages that its vLLM and its mods require."""
    from vllm_mods.trees import packages  # noqa: PLC0415  (packaging: only a comparison asks)

    tree, state = open_tree(target, None, recovering=None)
    requirements = (one.python for one in ground.variants_in(tree, state.receipt))
    versions = packages.required(tree, (text for texts in requirements for text in texts))
    return state.receipt, versions
