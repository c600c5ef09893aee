"""One cell whole: every hunk beside the target.

Reads a tree and writes nothing. What is shown beside a verdict never decides one.
"""

from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Mod
from vllm_mods.base.tree import Tree
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.matrices.cell import Cell, HunkView
from vllm_mods.placing import locate
from vllm_mods.placing.answers import Located, Lost
from vllm_mods.placing.nearest import nearest
from vllm_mods.placing.target import Target, shown, splice
from vllm_mods.planning import known_trees, part_step, patching
from vllm_mods.planning.layered_tree import LayeredTree

_BESIDE = 3


def explain(mod: Mod, cell: Cell, tree: Tree) -> Iterator[HunkView]:
    """Show every hunk of the cell's variant: each file as the parts before it have left it.

    Raises ``TreeError`` if the tree cannot be read, ``DiffError`` for a bad patch.
    """
    variant = next((one for one in mod.variants if one.id == cell.variant), None)
    if variant is None:
        return
    # then what the hunks leave is looked for, instead of what they find
    taken_out = cell.verdict.ok and not cell.verdict.writes
    view = LayeredTree(tree)
    parts = patching.parts_of(mod, variant, known_trees.WORKSPACE)
    for part in reversed(parts) if taken_out else parts:
        if part.diff is None:
            continue
        file = part.diff.reversed() if taken_out else part.diff
        data = view.read(file.old_path or file.path)
        target = part_step.target_of(file.path, data or b"")
        spots = []
        answers = _spots(file, data, target, back=taken_out)
        for hunk, own, spot in zip(file.hunks, part.diff.hunks, answers, strict=True):
            placed = spot if isinstance(spot, Located) else None
            if placed is not None:
                spots.append((placed.line, hunk))
            line, first = _place(hunk, target, spot)
            yield HunkView(
                patch=part.source,
                path=file.path,
                number=hunk.number,
                scope=spot.scope,
                line=line,
                offset=placed and placed.line - hunk.stated,
                proof=placed and placed.proof,
                lines=tuple(kind + shown(text) for kind, text in own.lines),
                target=_around(target, first, len(hunk.old)),
            )
        if len(spots) == len(file.hunks):
            view.lay([FileChange(path=file.path, before=data, after=splice(target.lines, spots))])


def _spots(
    file: FileDiff, data: bytes | None, target: Target, *, back: bool
) -> tuple[Located | Lost, ...]:
    spot: Located | Lost = Located(1, "", "new file")
    if file.old_path is None:
        if data is not None:
            spot = Lost(FindingCode.FILE_THERE, "", None, lines=(1,))
        return (spot,) * len(file.hunks)
    try:
        return locate.place(file, target, back=back)
    except UnparsableError as error:
        lost = Lost(code=FindingCode.UNPARSABLE, message=str(error), scope=None)
        return (lost,) * len(file.hunks)


def _place(hunk: Hunk, target: Target, spot: Located | Lost) -> tuple[int | None, int | None]:
    """Return the first line of the target that differs, and the line where the hunk would begin."""
    stands = (spot.line,) if isinstance(spot, Located) else spot.lines
    if stands:
        return stands[0], stands[0]
    try:
        near = nearest(hunk, target, spot.scope)
    except UnparsableError:
        near = None
    return (near.line, near.start) if near is not None else (None, None)


def _around(target: Target, line: int | None, extent: int) -> tuple[tuple[int, str], ...]:
    if line is None:
        return ()
    first = max(1, line - _BESIDE)
    last = min(len(target.lines), line + extent - 1 + _BESIDE)
    return tuple((number, shown(target.lines[number - 1])) for number in range(first, last + 1))
