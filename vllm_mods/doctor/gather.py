"""Everything that a doctor looks at, gathered once. Reads only, imports no vLLM."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vllm_mods import drafting, lock, planner, receipt, transitions
from vllm_mods.digest import sha256
from vllm_mods.doctor import installed, search
from vllm_mods.doctor.facts import Facts, Fit, Known, Refusal, Target
from vllm_mods.doctor.tool import tool
from vllm_mods.errors import ManifestError, Refused, VllmModsError
from vllm_mods.integrity import verify
from vllm_mods.library import Library
from vllm_mods.site import Site
from vllm_mods.state import pristine, read_receipt
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.image import ImageTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mods.model import Finding, Mod, Tree
    from vllm_mods.receipt import Receipt


def gather(
    spec: str | None,
    libraries: Sequence[str],
    opener: Callable[[str], Tree],
    *,
    workspace: str | None = None,
) -> Facts:
    """Look at this installation and at the tree ``spec``, else at the vLLM of this Python.

    ``libraries`` are folders of the caller's own. Raises what ``opener`` does for a tree that is
    named and is none.
    """
    faults: list[VllmModsError] = []
    library = _library(libraries, faults)
    mods = _loaded(library, faults)
    spec = spec if spec is not None else search.here()
    there = None if spec is None else opener(spec)
    target = None if there is None else _target(there, library, mods, workspace, faults)
    return Facts(
        tool=tool(),
        target=target,
        unreadable=tuple(Refusal(one.message, one.hint) for one in faults),
        elsewhere=search.elsewhere(os.environ) if target is None else (),
    )


def _library(folders: Sequence[str], faults: list[VllmModsError]) -> Library:
    try:
        return Library(*folders)
    except VllmModsError as error:
        faults.append(error)
        return Library()


def _loaded(library: Library, faults: list[VllmModsError]) -> tuple[Mod, ...]:
    found = []
    for name in library.names():
        try:
            found.append(library.load(name))
        except ManifestError as error:
            faults.append(error)
    return tuple(found)


def _target(
    tree: Tree,
    library: Library,
    mods: Sequence[Mod],
    workspace: str | None,
    faults: list[VllmModsError],
) -> Target:
    there: Receipt | None = None
    version: str | None = None
    findings: tuple[Finding, ...] = ()
    try:
        there, findings = _state(tree)
        version = tree.version
    except VllmModsError as error:  # a damaged receipt, say: the rest can still be told
        faults.append(error)
    folder = installed.look(tree.root, version) if isinstance(tree, FolderTree) else None
    before = pristine(tree, there)
    return Target(
        spec=tree.spec,
        kind=_kind(tree),
        version=version,
        receipt=there,
        findings=findings,
        known=tuple(filter(None, (_known(mod, before) for mod in mods))),
        fits=tuple(_fit(mod, library, tree, there, workspace) for mod in mods),
        folder=folder,
    )


def _state(tree: Tree) -> tuple[Receipt | None, tuple[Finding, ...]]:
    """Return the receipt, and everything that is not as it says."""
    if isinstance(tree, FolderTree):
        found = verify(tree.root)
        return read_receipt(tree.root), found
    if isinstance(tree, ImageTree):
        from vllm_mods.image.inspection import inspect  # noqa: PLC0415  (what folders do without)

        seen = inspect(tree)
        return seen.receipt, seen.findings
    raw = None if tree.remote else tree.read(receipt.RECEIPT)
    return (None if raw is None else receipt.parse(raw)), ()


def _kind(tree: Tree) -> str:
    if not isinstance(tree, FolderTree):
        return tree.spec.partition(":")[0]
    source = any(os.path.lexists(f"{tree.root}/{name}") for name in ("setup.py", "pyproject.toml"))
    return "source" if source else "installed"


def _known(mod: Mod, tree: Tree) -> Known | None:
    """Look up which releases have the files that a mod changes, as the tree has them."""
    if mod.lock is None:
        return None
    try:
        states = lock.parse(mod.lock, mod.directory).trees
    except ManifestError:
        return None  # the plan says so
    wanted = [
        (one.vllm, {file.path: file.before for file in one.files if file.before is not None})
        for one in states
    ]
    paths = sorted({path for _labels, files in wanted for path in files})
    try:
        there = {path: sha256(tree.read(path)) for path in paths}
    except VllmModsError:
        return None  # the plan calls it unreadable
    if not any(there.values()):
        return None
    return Known(
        mod=mod.name,
        paths=tuple(path for path in paths if there[path] is not None),
        stated=any(tree.version in labels for labels, _files in wanted),
        releases=tuple(
            label
            for labels, files in wanted
            if files and all(there[path] == digest for path, digest in files.items())
            for label in labels
        ),
    )


def _fit(
    mod: Mod, library: Library, tree: Tree, there: Receipt | None, workspace: str | None
) -> Fit:
    """Plan a mod with what it requires, and draft on disk what ``apply`` would do. Writes nothing."""
    try:
        planned = planner.plan(
            library.select((mod.name,)),
            tree,
            receipt=there,
            workspace=os.path.realpath(workspace) if workspace else planner.WORKSPACE,
        )
    except VllmModsError as error:
        return Fit(mod.name, None, Refusal(error.message, error.hint))
    mine = next(one for one in planned.mods if one.mod.name == mod.name)
    refusal = None
    if planned.ok and mine.verdict.writes and isinstance(tree, FolderTree):
        spaces = tuple(filter(None, (there.workspace if there else None, workspace)))
        where = Site(root=tree.root, workspaces=tuple(map(os.path.realpath, spaces)))
        try:
            drafting.draft(where, there, transitions.forward(planned, there))
        except Refused as error:
            refusal = Refusal(error.message, error.hint)
        except OSError as error:
            refusal = Refusal(str(error), f"ls -la {tree.root}")
    return Fit(mod.name, mine, refusal)
