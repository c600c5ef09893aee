"""What a tree carries of a mod itself, part by part. Pure.

Two ways to see it: the reversed hunks have their places, or the three-way merge from the tree that the
mod was written for gives the target's own bytes. The second sees a change whose surroundings are others
by now; it needs that tree, the *origin*.
"""

from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, HunkState, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.part_step import Part, PatchingStep


def merge_change(change: FileChange, data: bytes | None) -> bytes | None:
    """Carry a change over to what a target has of the file; None where the two clash.

    "No such file" counts as no bytes at all: ask ``is_carried`` for the difference.
    """
    if data in {change.before, change.after}:
        return change.after
    if change.before is None or change.after is None or data is None:
        return None
    sides = (line_diff.split(one) for one in (change.before, change.after, data))
    return diff3.clean(diff3.merge(*sides))


def is_carried(change: FileChange, data: bytes | None) -> bool:
    """Tell whether a target has a change already: merging it in gives the target's own bytes."""
    if data is None or change.after is None:
        return data == change.after
    return merge_change(change, data) == data


def changes_of(parts: tuple[Part, ...], origin: Tree) -> tuple[tuple[FileChange, ...], ...] | None:
    """Return what each part changes of the origin, as the parts before it left it.

    None if one of them does not go in there. Raises ``TreeError`` for a file that cannot be read.
    """
    view = LayeredTree(origin)
    done = []
    for part in parts:
        paths = dict.fromkeys((part.path, (part.diff and part.diff.new_path) or part.path))
        before = {path: view.read(path) for path in paths}
        if PatchingStep(part._replace(at_base=True), view).put_in():
            return None
        done.append(tuple(FileChange(path, old, view.read(path)) for path, old in before.items()))
    return tuple(done)


def carried_parts(parts: tuple[Part, ...], origin: Tree, tree: Tree) -> frozenset[int]:
    """Return the indexes of the parts that a tree carries, as far as the merge from ``origin`` tells."""
    try:
        changes = changes_of(parts, origin) or ()
        carried = (all(is_carried(one, tree.read(one.path)) for one in part) for part in changes)
        return frozenset(i for i, all_of_it in enumerate(carried) if all_of_it)
    except TreeError:
        return frozenset()  # what cannot be read decides nothing here; the plan has the words


def disagreement(tried: ModPlan, at_origin: ModPlan, version: str | None) -> Finding | None:
    """Return what the origin, which is of some version, has against a placement, if anything.

    Where the merge from there is clean, it has to give the same bytes; where it is not, each hunk has
    to be in the scope that it has there.
    """
    before = {change.path: change for change in at_origin.changes}
    scopes = {(hunk.patch, hunk.path, hunk.number): hunk.scope for hunk in at_origin.hunks}
    for change in tried.changes:
        known = before.get(change.path)
        result = None if known is None else merge_change(known, change.before)
        if result is not None and result != change.after:
            message = f"{change.path}: the hunks apply, but a three-way merge from vLLM {version} gives a different result"
            return Finding(FindingCode.MERGE, message, path=change.path)
        if result is not None:
            continue
        for hunk in tried.hunks:
            scope = scopes.get((hunk.patch, hunk.path, hunk.number))
            if hunk.path == change.path and scope is not None and scope != hunk.scope:
                message = f"{hunk.path}, hunk {hunk.number} of {hunk.patch}: in this tree, its text is at line {hunk.line} (`{hunk.scope or 'module level'}`); in vLLM {version}, which the patch was made for, its text is in `{scope or 'module level'}`"
                place = hunk.path, hunk.line, hunk.number, scope
                return Finding(FindingCode.ELSEWHERE, message, *place)
    return None


def states(
    parts: tuple[Part, ...], tree: Tree, origin: Tree | None = None
) -> tuple[HunkState, ...]:
    """Tell of each hunk, and each whole file, whether it could be put in, is in, or neither.

    Parts lie on top of each other: what could go in is put in from the first one up, what is in
    is taken out from the last one down.
    """
    state_of = {(i, number): "absent" for i, part in enumerate(parts) for number in _numbers(part)}

    def run(
        order: Iterable[int], state: str, put: Callable[[PatchingStep], Sequence[Finding]]
    ) -> None:
        view = LayeredTree(tree)
        for i in order:
            left = (number for number in _numbers(parts[i]) if state_of[i, number] == "absent")
            alone = {number: _only(parts[i], {number}) for number in left}
            fit = {n for n, part in alone.items() if not put(PatchingStep(part, LayeredTree(view)))}
            state_of.update({(i, number): state for number in fit})
            if fit:
                put(PatchingStep(_only(parts[i], fit), view))

    # first what could go in: only what could not be put in (again) counts as carried
    run(range(len(parts)), "placed", PatchingStep.put_in)
    run(reversed(range(len(parts))), "carried", PatchingStep.take_out)
    for i in carried_parts(parts, origin, tree) if origin is not None else ():
        state_of.update({(i, number): "carried" for number in _numbers(parts[i])})
    known = ((parts[i], number, state) for (i, number), state in state_of.items())
    return tuple(HunkState(part.source, part.path, number, state) for part, number, state in known)


def without(parts: tuple[Part, ...], taken: Iterable[HunkState]) -> tuple[Part, ...]:
    """Return the parts without some of their hunks and whole files."""
    gone = {(one.patch, one.path, one.number) for one in taken}
    left = []
    for part in parts:
        wanted = {n for n in _numbers(part) if (part.source, part.path, n) not in gone}
        if wanted:
            left.append(_only(part, wanted))
    return tuple(left)


def _numbers(part: Part) -> list[int | None]:
    """Return the numbers of a part's hunks; None stands for all that it does to its file."""
    file = part.diff
    if file is None or len(file.hunks) <= 1 or file.old_path != file.new_path:
        return [None]
    return [hunk.number for hunk in file.hunks]


def _only(part: Part, wanted: AbstractSet[int | None]) -> Part:
    if part.diff is None or None in wanted:
        return part
    hunks = tuple(hunk for hunk in part.diff.hunks if hunk.number in wanted)
    return part._replace(diff=part.diff._replace(hunks=hunks))
