"""Whether mods are still in an installed vLLM, as they were left."""

from collections.abc import Mapping

from vllm_mods.applying import ground
from vllm_mods.applying.advice import next_command
from vllm_mods.applying.opening import in_tree, open_tree
from vllm_mods.applying.outcomes import Status, Verified, of_mods
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import all_well
from vllm_mods.base.tree import Folder
from vllm_mods.formats.receipt import Receipt
from vllm_mods.plugins.installed import installed_plugins
from vllm_mods.site import integrity
from vllm_mods.trees import packages


def status(target: Folder, *names: str) -> Status:
    """Tell which mods are in a tree, and whether they still are. Nothing is written.

    ``target`` is that of ``apply``. Every file that the receipt names is compared, with ``names`` those of
    these mods (one that is not in is ``absent``): after ``pip install --force-reinstall`` a mod is no longer
    in, whatever the receipt says. Returns ``Status``. Raises ``UsageError`` for a target that is no vLLM,
    ``Refused`` for a damaged receipt, ``TreeError`` for a folder that cannot be read.

    >>> vm.apply(vm.Library("library").mods("fast"), "site-packages").plan.ok
    True
    >>> there = vm.status("site-packages")
    >>> there.ok, [(mod.name, mod.version, there.standing(mod)) for mod in there.mods]
    (True, [('fast', '1.0.0', 'in')])
    >>> _ = Path("site-packages/vllm/loader.py").write_text("import os")
    >>> there = vm.status("site-packages")
    >>> there.ok, [there.standing(mod) for mod in there.mods], there.hint.partition(" --target")[0]
    (False, ['changed'], 'vllm-mods revert --only-edits')
    """
    names = tuple(name.rpartition("/")[2] for name in names)  # a tree does not record the library
    tree, state = open_tree(target, None, recovering=None)
    undone = integrity.undone_in(state)
    findings = integrity.findings(state, undone.paths)
    if names:
        of_names = of_mods(findings, [entry for entry in state.mods if entry.name in names])
        findings = (*(one for one in findings if one.code == FindingCode.UNFINISHED), *of_names)
    return Status(
        target=tree.root,
        version=tree.version,
        receipt=state.receipt,
        unfinished=state.unfinished is not None,
        findings=findings,
        undone=undone.paths,
        hint=None if all_well(findings) else next_command(tree, state.receipt, undone, findings),
        names=names,
        plugins=tuple(installed_plugins(tree, state.receipt)),
    )


def verify(target: Folder, *names: str) -> Verified:
    """Tell whether what mods put into a tree is still as they left it. Nothing is written.

    ``target`` is that of ``apply``; with ``names``, only what these mods changed. Returns ``Verified``:
    ``ok``, and findings that say what is not as it was; who changed it cannot be known. A tree without mods
    is as it was. Raises as ``status`` does, and ``UsageError`` for a mod that is not in.

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
    undone = integrity.undone_in(state)
    findings = integrity.findings(state, undone.paths)
    mods = tuple(entry for entry in state.mods if not names or entry.name in names)
    if names:
        findings = of_mods(findings, mods)
    hint = None if all_well(findings) else next_command(tree, state.receipt, undone, findings)
    return Verified(tree.root, tree.version, mods, findings, hint)


def node_of(target: Folder) -> tuple[Receipt | None, Mapping[str, str]]:
    """Return a tree's receipt, None where no mods are in, and the installed versions of the packages that its vLLM and its mods require."""
    tree, state = open_tree(target, None, recovering=None)
    requirements = (one.python for one in ground.variants_in(tree, state.receipt))
    versions = packages.required(tree, (text for texts in requirements for text in texts))
    return state.receipt, versions
