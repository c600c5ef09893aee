"""Where a variant's hunks were written, and what a plan makes of knowing it. Pure.

Recorded once, on the tree that the patches were made for: there every hunk stands at its stated line.
"""

from collections.abc import Sequence

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import FileChange, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.formats.mod_lock import WrittenFile, WrittenFor, WrittenHunk
from vllm_mods.placing.target import blob_id, splice
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.part_step import Part, PatchingStep, target_of

_Recorded = tuple[list[WrittenFile], list[WrittenHunk]]


def record(
    variant: Variant, parts: Sequence[Part], tree: Tree, base: str | None = None
) -> WrittenFor | None:
    """Record where a variant's hunks stand in the tree it was written for; None if it was written for another.

    ``base`` is what to call the tree, its version by default.
    """
    view = LayeredTree(tree)
    try:
        written = [_record_part(part, view) for part in parts]
    except TreeError:
        return None  # the plan has the words for what cannot be read
    recorded = [one for one in written if one is not None]
    if len(recorded) < len(parts):
        return None
    return _written_for(variant, base or tree.version or tree.spec, recorded)


def record_parts(
    variant: Variant, parts: Sequence[Part], trees: Sequence[Tree]
) -> WrittenFor | None:
    """Record each part in the first of some trees in which its hunks stand at their stated lines, None if none does.

    So a variant is recorded that shares a patch with one for other releases.
    """
    recorded: list[_Recorded] = []
    base = ""
    for part in parts:
        for tree in trees:
            try:
                written = _record_part(part, LayeredTree(tree))
            except TreeError:
                continue
            if written is not None and written[1]:
                base = base or tree.version or tree.spec
                recorded.append(written)
                break
    return _written_for(variant, base, recorded) if recorded else None


def _written_for(variant: Variant, base: str, recorded: Sequence[_Recorded]) -> WrittenFor:
    files = tuple(file for own, _ in recorded for file in own)
    hunks = tuple(hunk for _, own in recorded for hunk in own)
    return WrittenFor(variant.id, base, digest(variant), files, hunks)


def _record_part(part: Part, view: LayeredTree) -> _Recorded | None:
    """Record one part and put it in; None if it does not go in at its stated lines."""
    from vllm_mods.placing import enclosure, locate  # noqa: PLC0415  (where a lock is written)

    file = part.diff
    before = view.read(part.path)
    if file is None or None in (file.old_path, file.new_path) or before is None or not file.hunks:
        return None if PatchingStep(part, view).put_in() else ([], [])
    target = target_of(part.path, before)
    lines = locate.stated_lines(file.hunks, target)
    if lines is None:
        return None
    after = splice(target.lines, [*zip(lines, file.hunks, strict=True)])
    if after is None:
        return None
    if file.new_path != file.old_path:
        view.lay([FileChange(part.path, before, None)])
    view.lay([FileChange(file.new_path or part.path, None, after)])
    hunks = [
        WrittenHunk(part.source, part.path, hunk.number, enclosure.texts_at(hunk, target, line))
        for hunk, line in zip(file.hunks, lines, strict=True)
    ]
    return [WrittenFile(part.source, part.path, blob_id(before), blob_id(after))], hunks


def digest(variant: Variant) -> str:
    """Return one digest for a variant's patches and the folders they are for."""
    lines = (f"{patch.source} {patch.root} {sha256(patch.data)}\n" for patch in variant.patches)
    return sha256("".join(lines).encode()) or ""


def of_variant(written: Sequence[WrittenFor], variant: Variant) -> WrittenFor | None:
    """Return what is recorded of a variant with these very patches."""
    own = (place for place in written if place.variant == variant.id)
    return next((place for place in own if place.patches == digest(variant)), None)


def attach(parts: tuple[Part, ...], written: WrittenFor | None) -> tuple[Part, ...]:
    """Return a variant's parts that know where they were written, if anybody does."""
    files = {(file.patch, file.path): file for file in (written.files if written else ())}
    chains: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {}
    for hunk in written.hunks if written else ():
        chains.setdefault((hunk.patch, hunk.path), {})[hunk.number] = hunk.chains
    return tuple(
        part
        if part.diff is None or (file := files.get((part.source, part.path))) is None
        else part._replace(
            diff=part.diff._replace(
                old_blob=part.diff.old_blob or file.before,
                new_blob=part.diff.new_blob or file.after,
            ),
            written=chains.get((part.source, part.path), {}),
        )
        for part in parts
    )
