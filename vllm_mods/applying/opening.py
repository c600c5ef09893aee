"""The folder that mods go into, opened with what earlier runs left in it."""

import os
from collections.abc import Callable, Sequence

from vllm_mods.applying import claims
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.tree import Folder
from vllm_mods.formats import receipt
from vllm_mods.site import state_folder, transaction
from vllm_mods.trees.folder import FolderTree, find_site_root


def open_tree(
    target: Folder, workspace: Folder | None, *, recovering: Callable[[str], object] | None
) -> tuple[FolderTree, state_folder.State]:
    """Open a folder, with what lies in it of earlier runs.

    With ``recovering``, which is told what one should know, what was interrupted is undone first.
    Whatever is to be changed comes from here, so nothing of it was read before that.
    """
    spec = os.fspath(target)
    kind = spec.split(":", 1)[0]
    if kind in {"pypi", "wheel", "sdist", "git", "image"} and not os.path.exists(spec):
        why = f"{spec} is not an installed vLLM, which this command needs as --target"
        hint = "--target FOLDER  # one that contains vllm/, such as site-packages"
        raise UsageError(why, hint=hint)
    root = find_site_root(spec)
    if recovering is not None:
        transaction.recover(root, recovering)
    state = state_folder.read_state(root)
    place = os.path.realpath(workspace) if workspace else None
    if state.receipt is not None and state.receipt.workspace is not None:
        claims.check_outside(state.receipt, spec)
        if place is not None and place != state.receipt.workspace:
            why = f"this tree's chat templates are in {state.receipt.workspace}, not in {workspace}"
            hint = f"--workspace {state.receipt.workspace}, or `vllm-mods revert --target {spec}` first"
            raise UsageError(why, hint=hint)
        place = state.receipt.workspace
    return FolderTree(root, spec=spec, workspace=place), state


def check_finished(tree: FolderTree, state: state_folder.State, what: str) -> None:
    """Raise ``Refused`` for a tree in which an earlier run was interrupted: ``what`` undoes that first."""
    if state.unfinished is not None:
        why = f"{tree.spec}: an earlier run was interrupted here and must be undone before {what}"
        names = " ".join(("apply", *(one.name for one in state.mods))) if state.mods else "revert"
        raise Refused(why, hint=f"vllm-mods {names} --target {tree.spec}  # undoes that run first")


def in_tree(names: Sequence[str], state: state_folder.State, tree: FolderTree) -> tuple[str, ...]:
    """Return mods' names as a tree has them: whose they are, it does not say. Raises ``UsageError`` for others."""
    known = {entry.name for entry in state.mods}
    for name in names:
        if name.rpartition("/")[2] not in known:
            why = f"{name} is not applied to {tree.spec}; applied: {', '.join(sorted(known)) or 'nothing'}"
            raise UsageError(why, hint=f"vllm-mods status --target {tree.spec}")
    return tuple(name.rpartition("/")[2] for name in names)


def templates_of(tree: FolderTree) -> str:
    """Return the folder that the chat templates of a tree go to."""
    return tree.workspace or os.path.join(tree.root, receipt.TEMPLATES)
