"""Whether what mods put into a tree is still as they left it, and the same on several nodes."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vllm_mods.applying import ground
from vllm_mods.applying.opening import in_tree, opened
from vllm_mods.applying.outcomes import Verified, of_mods
from vllm_mods.base.errors import UsageError
from vllm_mods.base.tree import Folder
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import receipt as receipts
from vllm_mods.formats import receipt_diff
from vllm_mods.formats.receipt import Receipt
from vllm_mods.formats.receipt_diff import Disagreement
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
    tree, state = opened(target, None, recovering=None)
    names = in_tree(names, state, tree)
    findings = integrity.findings(state, integrity.undone_in(state).paths)
    mods = tuple(entry for entry in state.mods if not names or entry.name in names)
    if names:
        findings = of_mods(findings, mods)
    return Verified(tree.root, tree.version, mods, findings)


class NodeReceipt(NamedTuple):
    """A receipt, None where no mods are in, and the versions of packages, None where nobody recorded them."""

    receipt: Receipt | None
    packages: Mapping[str, str] | None


class NodeComparison(NamedTuple):
    """In what several nodes differ: a value per node in each of ``differences``, in the order of ``names``.

    ``without_packages`` names one of which only the receipt is known while others have their packages.
    """

    names: tuple[str, ...]
    differences: tuple[Disagreement, ...]
    without_packages: str | None

    @property
    def ok(self) -> bool:
        """Whether all are the same."""
        return not self.differences


def compare(files: Sequence[tuple[str, bytes]], target: Folder | None = None) -> NodeComparison:
    """Compare the receipts of several nodes, files by name and bytes, and with ``target`` that of a tree.

    A file is a receipt, or what ``vllm-mods verify --json`` printed on a node. Raises ``UsageError`` for fewer
    than two, ``Refused`` for a file that is neither.
    """
    nodes = [_node_of_file(data, name) for name, data in files]
    names = tuple(name for name, _ in files)
    if target is not None:
        nodes.append(node_of(target))
        names = (*names, os.fspath(target))
    if len(names) < 2:
        raise UsageError(
            f"one receipt alone differs from none: {names[0]}",
            hint="vllm-mods verify --receipt FILE FILE, or --receipt FILE --target DIR",
        )
    versions = [node.packages for node in nodes]
    partly = None in versions and any(versions)
    return NodeComparison(
        names,
        (
            *receipt_diff.disagreements([node.receipt for node in nodes]),
            *receipt_diff.of_packages(versions),
        ),
        names[versions.index(None)] if partly else None,
    )


def node_of(target: Folder) -> NodeReceipt:
    """Return a tree's receipt, and the versions of the packages beside it that its vLLM and its mods name."""
    from vllm_mods.trees import packages  # noqa: PLC0415  (packaging: only a comparison asks)

    tree, state = opened(target, None, recovering=None)
    requirements = (one.python for one in ground.variants_in(tree, state.receipt))
    versions = packages.required(tree, (text for texts in requirements for text in texts))
    return NodeReceipt(state.receipt, versions)


def _node_of_file(raw: bytes, path: str) -> NodeReceipt:
    try:
        answer = json_of(raw)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not {"receipt", "packages"} <= answer.keys():
        return NodeReceipt(receipts.parse(raw, path), None)
    packages = answer["packages"]
    if not isinstance(packages, dict) or not all(isinstance(one, str) for one in packages.values()):
        raise UsageError(f"{path}: its packages have no versions", hint="vllm-mods verify --json")
    data = None if answer["receipt"] is None else json.dumps(answer["receipt"]).encode()
    return NodeReceipt(None if data is None else receipts.parse(data, path), packages)
