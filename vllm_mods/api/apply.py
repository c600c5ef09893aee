"""What is done to an installed vLLM: plan, apply, revert, status, verify.

The one module that knows both the planner and the writer of trees, and where it is decided what must
hold whoever calls: all mods go in or none does, and what was interrupted is undone before anything of
a tree is read that is to be changed.
"""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import functools
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.api import ground, taking_out
from vllm_mods.api.advice import left_out, next_command, refusal
from vllm_mods.api.ground import Ground
from vllm_mods.api.opening import Folder, check_finished, in_tree, opened, templates_of
from vllm_mods.api.outcomes import Applied, Reverted, Status, Verified, all_well, of_mods
from vllm_mods.base.errors import UsageError, refusing
from vllm_mods.base.model import Mod, Plan, Variant, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats.receipt import Receipt
from vllm_mods.library import trust
from vllm_mods.planning import planner
from vllm_mods.site import integrity, state_folder, transaction, transitions
from vllm_mods.site.state_folder import State
from vllm_mods.trees.folder import FolderTree


class Terms(NamedTuple):
    """On what terms mods go into a tree: the keywords of ``apply``, and whether anything is written."""

    workspace: Folder | None = None
    strict_version: bool = False
    only_supported: bool = False
    keep_links: bool = False
    planned: Callable[[Plan], object] | None = None
    without_files: bool = False
    source_date_epoch: int | None = None
    write: bool = True


def plan(
    mods: Sequence[Mod],
    tree: Tree,
    *,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
) -> Plan:
    """Tell what mods would do to a tree, and whether they fit it. Nothing is written.

    ``mods`` are those of ``Library.mods``, ``tree`` is what ``open_tree`` returns (or any other
    ``Tree``). ``workspace`` is the folder that chat templates go to; with ``strict_version`` a
    variant is taken only on the vLLM versions that it states; ``only_supported`` leaves out mods
    that have no variant for this tree.

    Returns a ``Plan``: a verdict and the findings for each mod, and the files that would change.
    A mod that does not fit is a verdict, not an error. Raises ``UsageError`` for mods that wait for
    each other in a circle, ``DiffError`` for a patch that is no good, ``ManifestError`` for a bad
    ``mod.lock``, ``TreeError`` for a tree whose receipt cannot be read, and ``Refused`` for a
    receipt that is damaged.

    >>> planned = vm.plan(vm.Library("library").mods("fast"), vm.open_tree("site-packages"))
    >>> planned.ok, [(one.mod.name, one.verdict.value) for one in planned.mods]
    (True, [('fast', 'applies')])
    >>> [change.path for change in planned.changes]
    ['vllm/loader.py']
    """
    _check_mods(mods)
    there = state_folder.receipt_of(tree)
    space = os.path.realpath(workspace) if workspace else there.workspace if there else None
    if tree.root is not None and tree.workspace is None:
        tree = FolderTree(tree.root, spec=tree.spec, workspace=space)
    terms = Terms(strict_version=strict_version, only_supported=only_supported)
    return planned_on(mods, ground.of(tree, there), space, terms).shown


def apply(
    mods: Sequence[Mod],
    target: Folder,
    *,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
    keep_links: bool = False,
    break_links: bool = False,  # noqa: ARG001  (what is done unless ``keep_links``; callers of before say so)
    source_date_epoch: int | None = None,
    planned: Callable[[Plan], object] | None = None,
    without_files: bool = False,
) -> Applied:
    """Put mods into an installed vLLM, whole or not at all.

    ``target`` is the site root (``site-packages``), its ``vllm`` folder or one inside that. What an
    earlier run left half done is undone first. ``workspace``, ``strict_version`` and
    ``only_supported`` are those of ``plan``. A hard-linked file is replaced by one of this tree's own,
    its other names stay as they are, and a note says so: ``keep_links`` refuses that, ``break_links``
    is accepted and changes nothing. ``source_date_epoch`` (seconds) is the time of every file written,
    else now; ``planned`` is called with the plan before anything is written. A mod with files that only an image
    gets is refused, unless these are to be left out: ``without_files``.

    Returns ``Applied``. Raises ``Refused`` with nothing changed: with the plan as its ``plan`` if
    not every mod fits, also for a mod that ``vllm-mods.toml`` here or of the machine does not trust;
    ``NotRestored`` if a failure could not be undone; ``UsageError`` for a target that is no vLLM, and
    whatever else ``plan`` raises.

    >>> mods = vm.Library("library").mods("fast")
    >>> done = vm.apply(mods, "site-packages")
    >>> "vllm/loader.py" in done.changed
    True
    >>> vm.apply(mods, done.target).changed
    ()
    """
    how = (workspace, strict_version, only_supported, keep_links, planned, without_files)
    return carried_out(mods, target, Terms(*how, source_date_epoch))


def carried_out(mods: Sequence[Mod], target: Folder, terms: Terms) -> Applied:
    """Do what ``apply`` does; if nothing is to be written, tell what it would do, and raise what it would refuse.

    A tree in which an earlier run was interrupted is refused then: only undoing that tells what is there.
    """
    notes: list[str] = []
    _check_mods(mods)
    trust.demand(mods)
    with refusing():
        recovering = notes.append if terms.write else None
        tree, there = opened(target, terms.workspace, recovering=recovering)
        if not terms.write:
            check_finished(tree, there, "apply")
        made, wanted = _decided(mods, tree, there, notes, terms)
        changed: tuple[str, ...] = ()
        if wanted is not None:
            outcome = brought(tree, there, wanted, terms)
            changed = outcome.changed
            notes += outcome.notes
    return Applied(tree.root, made, changed, tuple(notes), templates_of(tree))


def brought(
    tree: FolderTree, there: State, wanted: transaction.Transition, terms: Terms
) -> transaction.Outcome:
    """Bring a tree to what is wanted, or only tell what that would change."""
    do = transaction.rehearse
    if terms.write:
        do = functools.partial(transaction.commit, source_date_epoch=terms.source_date_epoch)
    return do(tree.root, wanted, workspace=tree.workspace, keep_links=terms.keep_links, known=there)


def _decided(
    mods: Sequence[Mod], tree: FolderTree, there: State, notes: list[str], terms: Terms
) -> tuple[Plan, transaction.Transition | None]:
    """Return the plan of mods, and what brings the tree there, None where nothing is to be done.

    Raises ``Refused`` where not every mod fits; ``notes`` are what was said before, and get more.
    """
    base = ground.of(tree, there.receipt)
    made, whole = planned_on(mods, base, tree.workspace, terms)
    notes += agreed(made, tree, terms, notes)
    if base.bare is not None:
        wanted = ground.transition(base, whole, tree.root)
        notes += ground.notes(base, made, wanted)
        return made, wanted
    if any(one.verdict.writes for one in made.mods):
        return made, transitions.forward(whole, there.receipt)
    return made, None


def agreed(made: Plan, tree: FolderTree, terms: Terms, notes: Sequence[str]) -> list[str]:
    """Show a plan to whoever wants to see it, and return what it leaves out. Raises ``Refused`` where not all fits.

    ``notes`` are what was said before.
    """
    if terms.planned is not None:
        terms.planned(made)
    if not made.ok:
        raise refusal(made, tree, notes)
    return left_out(made, allowed=terms.without_files)


def revert(
    target: Folder,
    *names: str,
    discard_edits: bool = False,
    source_date_epoch: int | None = None,
) -> Reverted:
    """Take mods out again, by name, or all of them; the others stay as if these had never been in.

    With all of them out, every byte, mode and time is as before the first ``apply``. What an earlier
    run left half done is undone first. With ``discard_edits`` also where a file was edited since;
    ``target`` and ``source_date_epoch`` are those of ``apply``.

    Returns ``Reverted``. Raises ``UsageError`` for a mod that is not in, ``Refused`` with nothing
    changed (a file was edited since, a mod that stays needs one that goes), ``NotRestored`` if a
    failure could not be undone.

    >>> vm.apply(vm.Library("library").mods("fast", "limit"), "site-packages").plan.ok
    True
    >>> vm.revert("site-packages", "fast").reverted
    ('fast',)
    >>> [mod.name for mod in vm.status("site-packages").mods]
    ['limit']
    >>> vm.revert("site-packages").mods
    ()
    """
    notes: list[str] = []
    with refusing():
        tree, there = opened(target, None, recovering=notes.append)
        names = in_tree(names, there, tree)
        known = tuple(entry.name for entry in there.mods)
        gone = names or known
        changed: tuple[str, ...] = ()
        if there.receipt is not None:
            undone = integrity.undone_in(there)
            # what an installer has undone is out already, and is not put in again by this
            gone = tuple(name for name in known if name in {*gone, *undone.mods(there.receipt)})
            left = Ground(tree, there.receipt, undone).left if undone.paths else there.receipt
            try:
                wanted = taking_out.without(tree, left, gone, discard_edits=discard_edits)
            except OSError as error:
                raise transaction.refusal(tree.root, error) from error
            outcome = transaction.commit(
                tree.root,
                wanted._replace(undone=undone.paths),
                workspace=there.receipt.workspace,
                source_date_epoch=source_date_epoch,
                known=there,
            )
            changed = outcome.changed
            notes += outcome.notes
        version = tree.version
    stay = tuple(entry for entry in there.mods if entry.name not in gone)
    return Reverted(tree.root, version, gone, stay, changed, tuple(notes))


def status(target: Folder, *names: str) -> Status:
    """Tell which mods are in a tree, and whether they still are. Nothing is written.

    ``target`` is that of ``apply``. Every file that the receipt names is compared, with ``names`` those of
    these mods: after ``pip install --force-reinstall`` a mod is no longer in, whatever the receipt says.
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
    tree, there = opened(target, None, recovering=None)
    undone = integrity.undone_in(there)
    found = integrity.findings(there, undone.paths)
    if names:
        named = of_mods(found, [entry for entry in there.mods if entry.name in names])
        found = (*(one for one in found if one.code == "unfinished"), *named)
    return Status(
        target=tree.root,
        version=tree.version,
        receipt=there.receipt,
        unfinished=there.unfinished is not None,
        findings=found,
        undone=undone.paths,
        hint=None if all_well(found) else next_command(tree, there.receipt, undone, found),
    )


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
    >>> [(found.code, found.path) for found in vm.verify("site-packages").findings]
    [('missing', 'vllm/loader.py'), ('record-disagrees', 'vllm/loader.py')]
    """
    tree, there = opened(target, None, recovering=None)
    names = in_tree(names, there, tree)
    found = integrity.findings(there, integrity.undone_in(there).paths)
    if names:
        found = of_mods(found, [entry for entry in there.mods if entry.name in names])
    mods = tuple(entry for entry in there.mods if not names or entry.name in names)
    return Verified(tree.root, tree.version, mods, found)


def packages_of(target: Folder) -> dict[str, str]:
    """Return the versions of the packages beside a tree that its vLLM and the mods in it name."""
    from vllm_mods.trees import packages  # noqa: PLC0415  (packaging: only a comparison asks)

    tree, there = opened(target, None, recovering=None)
    wanted = (one.python for one in ground.variants_in(tree, there.receipt))
    return packages.required(tree, (text for texts in wanted for text in texts))


def kept_in(target: Folder, names: Sequence[str]) -> tuple[Mod, ...]:
    """Return those of the named mods that went into a tree, as they were then; none where there is no tree."""
    try:
        tree, there = opened(target, None, recovering=None)
    except UsageError:
        return ()  # told by whoever needs the tree; of a mod that is nowhere, the name is
    return tuple(ground.kept_mod(tree, entry.name) for entry in there.mods if entry.name in names)


def planned_on(
    mods: Sequence[Mod], base: Ground, workspace: str | None, terms: Terms
) -> ground.Planned:
    """Plan mods on what is there of a tree; a release that no lock knows is asked for only if it matters."""
    ask: Callable[[Mod, Variant], Tree | None] | None = None

    def origin(mod: Mod, variant: Variant) -> Tree | None:
        nonlocal ask
        if ask is None:
            from vllm_mods.planning import origins  # noqa: PLC0415  (for trees that no lock knows)

            ask = origins.of_tree(base.tree)
        return ask(mod, variant)

    def planned(chosen: Sequence[Mod], tree: Tree, there: Receipt | None) -> Plan:
        return planner.plan(
            chosen,
            tree,
            receipt=there,
            workspace=workspace or planner.WORKSPACE,
            strict_version=terms.strict_version,
            origin=origin,
        )

    made = ground.plan(base, mods, planned)
    supported = [one.mod for one in made.shown.mods if one.verdict is not Verdict.UNSUPPORTED]
    if terms.only_supported and len(supported) < len(made.shown.mods):
        return ground.plan(base, supported, planned)
    return made


def _check_mods(mods: Sequence[Mod]) -> None:
    for one in mods:
        if not isinstance(one, Mod):
            raise UsageError(
                f"a mod is wanted, and this is none: {one!r}", hint='Library().mods("NAME")'
            )
