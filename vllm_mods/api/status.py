"""Which mods are in an installed vLLM, and whether they still are."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

from vllm_mods.applying.advice import next_command
from vllm_mods.applying.opening import open_tree
from vllm_mods.applying.outcomes import Status, all_well, of_mods
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.tree import Folder
from vllm_mods.site import integrity


def status(target: Folder, *names: str) -> Status:
    """Tell which mods are in a tree, and whether they still are. Nothing is written.

    ``target`` is that of ``apply``. Every file that the receipt names is compared, with ``names`` those of
    these mods (one that is not in is ``absent``): after ``pip install --force-reinstall`` a mod is no longer
    in, whatever the receipt says.
    Returns ``Status``. Raises ``UsageError`` for a target that is no vLLM, ``Refused`` for a damaged
    receipt, ``TreeError`` for a folder that cannot be read.

    >>> vm.apply(vm.Library("library").mods("fast"), "site-packages").plan.ok
    True
    >>> there = vm.status("site-packages")
    >>> there.ok, [(mod.name, mod.version, there.standing(mod)) for mod in there.mods]
    (True, [('fast', '1.0.0', 'in')])
    >>> _ = Path("site-packages/vllm/loader.py").write_text("import os")
    >>> there = vm.status("site-packages")
    >>> there.ok, [there.standing(mod) for mod in there.mods], there.hint
    (False, ['changed'], 'vllm-mods revert --discard-edits --target site-packages && vllm-mods apply fast --target site-packages')
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
    )
