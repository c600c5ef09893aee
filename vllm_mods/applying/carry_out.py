"""Mods into an installed vLLM, and out of it: the plan on what is there, then the transaction.

The one module that knows both the planner and the writer of trees. All mods go in or none does, and what
was interrupted is undone before anything of a tree is read that is to be changed. A tree that is to hold
exactly some mods loses what is not among them in the same transaction.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.applying import claims, ground
from vllm_mods.applying.advice import left_out, reasons, refusal
from vllm_mods.applying.ground import Ground, Terms, check_mods, plan_on_ground
from vllm_mods.applying.opening import check_finished, in_tree, open_tree, templates_of
from vllm_mods.applying.outcomes import Applied, Reverted
from vllm_mods.base.errors import Refused, UsageError, refusing
from vllm_mods.base.model import Mod, Plan, all_well
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.formats.receipt import Receipt, ReceiptMod
from vllm_mods.library import trust
from vllm_mods.planning import planner
from vllm_mods.site import integrity, obstacles, transaction, transitions
from vllm_mods.site.state_folder import State
from vllm_mods.trees import receipt_tree
from vllm_mods.trees.folder import FolderTree
from vllm_mods.trees.open import as_tree


class Exactly(NamedTuple):
    """What has to be done, or was done, so that a tree holds exactly some mods.

    ``out`` are those that go, ``into`` those that come, ``renewed`` those that were another version;
    ``changed`` are the paths that are written or removed. Nothing is to be done if ``settled``.
    """

    target: str
    plan: Plan
    out: tuple[ReceiptMod, ...]
    into: tuple[ReceiptMod, ...]
    renewed: tuple[ReceiptMod, ...]
    changed: tuple[str, ...]
    notes: tuple[str, ...]
    settled: bool
    templates: str


def apply(
    mods: Sequence[Mod],
    target: Folder,
    *,
    workspace: Folder | None = None,
    strict_version: bool = False,
    only_supported: bool = False,
    keep_links: bool = False,
    source_date_epoch: int | None = None,
    planned: Callable[[Plan], object] | None = None,
    without_files: bool = False,
    base: Tree | Folder | None = None,
    write: bool = True,
) -> Applied:
    """Put mods into an installed vLLM, whole or not at all.

    ``target`` is the site root (``site-packages``), its ``vllm`` folder or one inside that. What an earlier run left
    half done is undone first. ``workspace``, ``strict_version``, ``only_supported`` and ``base`` are those of ``plan``.
    A hard-linked file is replaced by one of this tree's own, its other names stay as they are, and a note says so:
    ``keep_links`` refuses that. ``source_date_epoch`` (seconds since 1970) is the time of every file written, else now;
    ``planned`` is called with the plan before anything is written. A mod with files that only an image gets is refused,
    unless ``without_files`` leaves these out. Without ``write`` nothing is written, and what would be is returned.

    Returns ``Applied``. Raises ``Refused`` with nothing changed: with the plan as its ``plan`` if not every mod fits,
    also for a mod that ``vllm-mods.toml`` here or of the machine does not trust; ``NotRestored`` if a failure could not
    be undone; ``UsageError`` for a target that is no vLLM, and whatever else ``plan`` raises.

    >>> mods = vm.Library("library").mods("fast")
    >>> done = vm.apply(mods, "site-packages")
    >>> "vllm/loader.py" in done.changed
    True
    >>> vm.apply(mods, done.target).changed
    ()
    """
    terms = Terms(
        workspace=workspace,
        strict_version=strict_version,
        only_supported=only_supported,
        keep_links=keep_links,
        planned=planned,
        without_files=without_files,
        source_date_epoch=source_date_epoch,
        base=None if base is None else as_tree(base),
        write=write,
    )
    notes: list[str] = []
    check_mods(mods)
    trust.demand(mods)
    with refusing():
        recovering = notes.append if write else None
        tree, state = open_tree(target, workspace, recovering=recovering)
        if not write:  # the state is known only after the other run is undone
            check_finished(tree, state, "apply")
        plan, transition = decide(mods, tree, state, notes, terms)
        changed = () if transition is None else _commit(tree, transition, terms, notes)
    return Applied(tree.root, plan, changed, tuple(notes), templates_of(tree))


def _commit(
    tree: FolderTree, transition: transitions.Transition, terms: Terms, notes: list[str]
) -> tuple[str, ...]:
    """Carry out a transition of a tree, or only return the files that it would change; extend ``notes``."""
    outcome = transaction.commit(
        tree.root,
        transition,
        workspace=tree.workspace,
        source_date_epoch=terms.source_date_epoch,
        keep_links=terms.keep_links,
        write=terms.write,
    )
    notes += outcome.notes
    return outcome.changed


def decide(
    mods: Sequence[Mod], tree: FolderTree, state: State, notes: list[str], terms: Terms
) -> tuple[Plan, transitions.Transition | None]:
    """Return the plan, and the transition, if any; extend ``notes``. Raises ``Refused``."""
    base = ground.of(tree, state.receipt)
    plan, whole = plan_on_ground(mods, base, tree.workspace, terms)
    notes += check_agreement(plan, tree, terms, notes)
    if base.bare is not None:
        transition = ground.transition(base, whole, tree.root)
        notes += ground.notes(base, plan, transition)
        return plan, transition
    if any(planned.verdict.writes for planned in plan.mods):
        return plan, ground.forward(whole, state.receipt)
    return plan, None


def check_agreement(plan: Plan, tree: FolderTree, terms: Terms, notes: Sequence[str]) -> list[str]:
    """Hand a plan to the caller's ``planned``, and return a note for each file that is left out.

    Raises ``Refused`` where not every mod fits, with the ``notes`` so far in the message.
    """
    if terms.planned is not None:
        terms.planned(plan)
    if not plan.ok:
        raise refusal(plan, tree, notes)
    return left_out(plan, allowed=terms.without_files)


def hold(mods: Sequence[Mod], target: Folder, terms: Terms) -> Exactly:
    """Make a tree hold exactly these mods, or tell what that would take. Raises as ``apply`` does."""
    trust.demand(mods)
    notes: list[str] = []
    with refusing():
        recovering = notes.append if terms.write else None
        tree, state = open_tree(target, terms.workspace, recovering=recovering)
        check_finished(tree, state, "sync")
        gone = integrity.undone_in(state)
        left = None if state.receipt is None else Ground(tree, state.receipt, gone).left
        if left is not None:
            claims.check(tree, left)
        bare = Ground(receipt_tree.pristine(tree, left), None)
        plan = plan_on_ground(mods, bare, tree.workspace, terms).whole
        notes += check_agreement(plan, tree, terms, notes)
        wanted = ground.forward(plan, None)
        if left is not None:
            wanted = transitions.revert_transition(tree.root, left, wanted)
            wanted = wanted._replace(undone=gone.paths)
        settled = wanted.mods == state.mods and not wanted.changes
        changed = () if settled else _commit(tree, wanted, terms, notes)
    was = {one.name: one for one in state.mods}
    now = {one.name: one for one in wanted.mods}
    return Exactly(
        tree.root,
        plan,
        tuple(one for name, one in was.items() if name not in now),
        tuple(one for name, one in now.items() if name not in was),
        tuple(one for name, one in now.items() if name in was and one.digest != was[name].digest),
        changed,
        tuple(notes),
        settled,
        templates_of(tree),
    )


def revert(
    target: Folder,
    *names: str,
    discard_edits: bool = False,
    only_edits: bool = False,
    source_date_epoch: int | None = None,
) -> Reverted:
    """Take mods out again, by name, or all of them, as if they had never been in; the others stay.

    With all of them out, every byte, mode and time is as before the first ``apply``. What an earlier run left half done
    is undone first. With ``discard_edits`` also where a file was edited since; with ``only_edits`` all mods stay, and
    every file of theirs is again as they left it. ``target`` and ``source_date_epoch`` are those of ``apply``.

    Returns ``Reverted``. Raises ``UsageError`` for a mod that is not in, ``Refused`` with nothing changed (a file was
    edited since, a mod that stays needs one that goes), ``NotRestored`` if a failure could not be undone.

    >>> vm.apply(vm.Library("library").mods("fast", "limit"), "site-packages").plan.ok
    True
    >>> vm.revert("site-packages", "fast").reverted
    ('fast',)
    >>> [mod.name for mod in vm.status("site-packages").mods]
    ['limit']
    >>> vm.revert("site-packages").mods
    ()
    """
    if only_edits and (names or discard_edits):
        why = "--only-edits takes no mods and no --discard-edits: it undoes the edits, and keeps all mods"
        raise UsageError(why, hint="omit --only-edits to remove mods")
    notes: list[str] = []
    with refusing():
        tree, state = open_tree(target, None, recovering=notes.append)
        names = in_tree(names, state, tree)
        known = tuple(entry.name for entry in state.mods)
        gone = () if only_edits else names or known
        changed: tuple[str, ...] = ()
        if state.receipt is not None:
            undone = integrity.undone_in(state)
            # what an installer has undone is out already, and only `only_edits` puts it in again
            if not only_edits:
                gone = tuple(name for name in known if name in {*gone, *undone.mods(state.receipt)})
            left = Ground(tree, state.receipt, undone).left
            try:
                discard = discard_edits or only_edits
                transition = plan_removal(tree, left, gone, discard_edits=discard)
            except OSError as error:
                raise obstacles.refusal(tree.root, error) from error
            if not (only_edits and all_well(integrity.findings(state, undone.paths))):
                terms = Terms(source_date_epoch=source_date_epoch)
                changed = _commit(tree, transition._replace(undone=undone.paths), terms, notes)
        version = tree.version
    stay = tuple(entry for entry in state.mods if entry.name not in gone)
    return Reverted(tree.root, version, gone, stay, changed, tuple(notes))


def plan_removal(
    tree: FolderTree, current: Receipt, gone: Sequence[str], *, discard_edits: bool
) -> transitions.Transition:
    """Return the transition to the untouched tree with the remaining mods planned on it anew.

    Raises ``Refused`` where one of them needs one that goes, would not go in, or is not kept.
    """
    claims.check(tree, current)
    stay = [entry for entry in current.mods if entry.name not in gone]
    if not stay:
        return transitions.revert_transition(tree.root, current, discard_edits=discard_edits)
    mods = ground.staying(tree, current, gone)
    needed = [f"{mod.name} needs {name}" for mod in mods for name in mod.requires if name in gone]
    if needed:
        why = f"nothing was changed in {tree.spec}: {'; '.join(needed)}"
        hint = f"vllm-mods revert {' '.join([*gone, *(mod.name for mod in mods)])} --target {tree.spec}"
        raise Refused(why, hint=hint)
    plan = planner.plan(
        mods, receipt_tree.pristine(tree, current), workspace=current.workspace or planner.WORKSPACE
    )
    bad = [one for one in plan.mods if not one.verdict.ok]
    if bad:
        why = "one of the mods that stay cannot be applied again"
        why += f" without {', '.join(gone)}" if gone else ""
        head = f"nothing was changed in {tree.spec}: {why}"
        names = " ".join([*gone, *(one.mod.name for one in bad)])
        how = "" if gone else " --discard-edits"
        hint = f"vllm-mods revert {names}{how} --target {tree.spec}"
        raise Refused("\n".join((head, *reasons(plan))), hint=hint, plan=plan)
    wanted = ground.forward(plan, None)
    return transitions.revert_transition(tree.root, current, wanted, discard_edits=discard_edits)
