"""The transitions of a tree: forward by a plan, back to the untouched tree or to one with fewer mods."""

from collections.abc import Callable
from typing import NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange, Mod, ModPlan, Plan
from vllm_mods.formats import receipt
from vllm_mods.library import packed_mod
from vllm_mods.site import site


class Transition(NamedTuple):
    """What a tree is to become.

    ``changes`` start from what the tree has now; of those whose path is in ``restored`` the untouched form comes back
    with all its metadata, whatever they say of it. ``before`` are the mods that were in when this was planned, ``mods``
    all that are in afterwards, ``()`` for an untouched tree; the receipt's other parts follow. ``sources`` are mods by
    name, each packed by ``keep``; those of mods that stay need not be given again. ``discard_edits`` overwrites a
    RECORD that somebody changed since. ``undone`` are paths of the receipt that an installer has put its own files at:
    they count as never touched. ``aside`` is where a copy of our folder goes, which says what was in before that.
    """

    changes: tuple[FileChange, ...]
    before: tuple[receipt.ReceiptMod, ...]
    mods: tuple[receipt.ReceiptMod, ...]
    vllm: str | None
    restored: frozenset[str] = frozenset()
    sources: tuple[tuple[str, bytes], ...] = ()
    discard_edits: bool = False
    undone: frozenset[str] = frozenset()
    aside: str | None = None


_NO_MODS = Transition(changes=(), before=(), mods=(), vllm=None)


def forward(
    planned: Plan, applied: receipt.Receipt | None, kept: Callable[[ModPlan], Mod] | None = None
) -> Transition:
    """Return what brings the tree from ``applied`` to what the plan says.

    Mods that are in stay in; mods that write come after them. A mod that is in without a
    receipt, or that the release carries itself, is none of ours and gets no entry. ``kept`` returns
    the mod to keep of a plan [without its lock: another one must not make another layer of an image].
    """
    before = () if applied is None else applied.mods
    new = [one for one in planned.mods if one.verdict.writes]
    named = ((one.mod.name, kept(one) if kept else one.mod._replace(lock=None)) for one in new)
    return Transition(
        changes=planned.changes,
        before=before,
        mods=(*before, *(_entry(one) for one in new)),
        vllm=planned.version,
        sources=tuple((name, packed_mod.pack(mod)) for name, mod in named),
    )


def revert_transition(
    root: str, applied: receipt.Receipt, stay: Transition = _NO_MODS, *, discard_edits: bool = False
) -> Transition:
    """Return the transition from what ``applied`` says is in to the mods that stay.

    ``stay`` is what would bring these into the untouched tree; without it every file goes back to its original.

    Raises ``Refused`` if a file that would be written was changed since, unless
    ``discard_edits``. A file that is already as it was before the mods was not "changed".
    """
    where = site.Site(root=root, workspaces=(applied.workspace,) if applied.workspace else ())
    look = site.Look(site=where, folders={})
    wanted = {change.path: change for change in stay.changes}
    written: list[FileChange] = []
    restored: set[str] = set()
    edited: list[str] = []
    # where all mods stay, each file is to be as they left it
    only_edits = discard_edits and len(stay.mods) == len(applied.mods)
    for file in applied.files:
        if file.kind == receipt.RECORD and look.file(file.path) is None:
            was = f"vLLM {applied.vllm}" if applied.vllm else "vLLM"
            why = f"{file.path} is gone: {was} was upgraded or removed after the mods were applied, so the stored originals no longer belong to these files; nothing was changed"
            raise Refused(why, hint=f"the receipt is out of date: rm -r {root}/{receipt.STATE}")
        if file.kind != receipt.FILE:
            continue  # these follow from the files
        current = look.read(file.path)
        own_mode = look.mode(receipt.original(file.path))  # unless a mod that stays gives it one
        change = wanted.pop(file.path, None)
        if change is None:
            restored.add(file.path)
            change = FileChange(file.path, current, None)
        elif only_edits:
            change = change._replace(mode=file.mode)
            is_as_left = (change.after, file.mode) == (current, look.mode(file.path))
            if is_as_left and not file.path.endswith(".py"):  # what is compiled of a source goes
                continue
        elif change.after == current and (change.mode or own_mode) in {None, file.mode}:
            continue  # it is already as it is to be
        written.append(change._replace(before=current, mode=change.mode or own_mode))
        if sha256(current) not in {file.before, file.after}:
            edited.append(file.path)
    written += wanted.values()
    if edited and not discard_edits:
        way = "only" if stay.mods else "discard"
        why = f"{root}: these files were changed after the mods were applied: {', '.join(edited)}. Nothing was done, because these edits would be lost"
        hint = f"vllm-mods revert --{way}-edits --target {root}  # discards these edits"
        raise Refused(why, hint=hint)
    return stay._replace(
        changes=tuple(written),
        restored=frozenset(restored),
        before=applied.mods,
        vllm=applied.vllm,
        discard_edits=discard_edits,
    )


def _entry(planned: ModPlan) -> receipt.ReceiptMod:
    return receipt.ReceiptMod(
        name=planned.mod.name,
        version=planned.mod.version,
        digest=planned.mod.digest,
        variant=planned.variant.id if planned.variant is not None else "",
        verdict=planned.verdict.value,
        files=receipt.hashes(planned.changes),
    )
