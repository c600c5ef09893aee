"""One cell whole: every hunk beside the target, and what upstream changed since it last worked.

Reads two trees and writes nothing. What is shown beside a verdict never decides one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Mod, Variant, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.matrices.answer import Shown
from vllm_mods.matrices.cell import Cell, History, HunkView
from vllm_mods.placing import locate, scopes
from vllm_mods.placing.answers import Located, Lost
from vllm_mods.placing.nearest import nearest
from vllm_mods.placing.splicing import splice
from vllm_mods.placing.target import Target
from vllm_mods.planning import known_trees, part_step, patching
from vllm_mods.planning.layered_tree import LayeredTree

_BESIDE = 3
_IN = frozenset({Verdict.APPLIED, Verdict.UPSTREAM})


class Before(NamedTuple):
    """The last release on which the mod worked: its cell and the tree."""

    cell: Cell
    tree: Tree


class _ExplainedHunk(NamedTuple):
    """A hunk of a patch: as it is looked for, and as it is ``shown``."""

    patch: str
    file: FileDiff
    hunk: Hunk
    shown: Hunk


def explain(mod: Mod, cell: Cell, tree: Tree, before: Before | None) -> Shown:
    """Explain a cell. ``before`` is asked only for a cell that is not good.

    Raises ``TreeError`` if one of the trees cannot be read, ``DiffError`` for a bad patch.
    """
    variant = _variant(mod, cell)
    if variant is None:
        return Shown()
    taken_out = cell.verdict in _IN
    hunks = tuple(_views(mod, variant, tree, taken_out=taken_out))
    history: tuple[History, ...] = ()
    if before is not None and not cell.verdict.ok:
        worked = _variant(mod, before.cell) or variant
        is_in = before.cell.verdict in _IN
        places = tuple(_views(mod, worked, before.tree, taken_out=is_in))
        history = tuple(_history(places, before, tree))
    return Shown(hunks, history)


def last_good(cells: Sequence[Cell], cell: Cell) -> Cell | None:
    """Return the last cell before this one, in the order of ``cells``, where the mod goes in."""
    mine = [one for one in cells if one.mod == cell.mod]
    good = [one for one in mine[: mine.index(cell)] if one.verdict.ok]
    return good[-1] if good else None


def _variant(mod: Mod, cell: Cell) -> Variant | None:
    return next((one for one in mod.variants if one.id == cell.variant), None)


def _views(mod: Mod, variant: Variant, tree: Tree, *, taken_out: bool) -> Iterator[HunkView]:
    """Show every hunk of a variant: each file as the parts before it have left it.

    ``taken_out`` looks for what the hunks leave instead of for what they find.
    """
    view = LayeredTree(tree)
    parts = patching.parts_of(mod, variant, known_trees.WORKSPACE)
    for part in reversed(parts) if taken_out else parts:
        if part.diff is None:
            continue
        file = part.diff.reversed() if taken_out else part.diff
        data = view.read(file.old_path) if file.old_path is not None else None
        target = part_step.target_of(file.path, data or b"")
        spots = []
        for hunk, shown, spot in zip(
            file.hunks, part.diff.hunks, _spots(file, target, back=taken_out), strict=True
        ):
            if isinstance(spot, Located):
                spots.append((spot.line, hunk))
            yield _view(_ExplainedHunk(part.source, file, hunk, shown), target, spot)
        if data is not None and len(spots) == len(file.hunks):
            after = splice(target.lines, spots)
            view.lay([FileChange(path=file.path, before=data, after=after)])


def _spots(file: FileDiff, target: Target, *, back: bool) -> tuple[Located | Lost, ...]:
    try:
        return locate.place(file, target, back=back)
    except UnparsableError as error:
        lost = Lost(code=FindingCode.UNPARSABLE, message=str(error), scope=None)
        return (lost,) * len(file.hunks)


def _view(of: _ExplainedHunk, target: Target, spot: Located | Lost) -> HunkView:
    line: int | None
    first: int | None  # where the hunk would begin; `line` is the first that differs
    proof: str | None = None
    if isinstance(spot, Located):
        line, proof = spot.line, spot.proof
        first = line
    else:
        line = first = spot.lines[0] if spot.lines else None
        if line is None and spot.code == FindingCode.ABSENT:
            near = nearest(of.hunk, target, spot.scope)
            line, first = (near.line, near.start) if near is not None else (None, None)
        if of.file.old_path is None and not target.data:
            proof = "new file"
    return HunkView(
        patch=of.patch,
        path=of.file.path,
        number=of.hunk.number,
        scope=spot.scope,
        line=line,
        offset=line - of.hunk.stated if line is not None and proof is not None else None,
        proof=proof,
        lines=tuple(kind + _text(text) for kind, text in of.shown.lines),
        target=_around(target, first, len(of.hunk.old)),
    )


def _around(target: Target, line: int | None, extent: int) -> tuple[tuple[int, str], ...]:
    if line is None:
        return ()
    first = max(1, line - _BESIDE)
    last = min(len(target.lines), line + extent - 1 + _BESIDE)
    return tuple((number, _text(target.lines[number - 1])) for number in range(first, last + 1))


def _history(places: Sequence[HunkView], before: Before, tree: Tree) -> Iterator[History]:
    """Show what has changed in the touched files, where the hunks were."""
    for path in dict.fromkeys(place.path for place in places):
        old, new = before.tree.read(path), tree.read(path)
        if old is None or old == new:
            continue
        since = before.cell.version
        if new is None:
            head = (f"--- {path} ({since})", "+++ /dev/null")
            yield History(path=path, since=since, diff=head)
            continue
        extents = _extents([place for place in places if place.path == path], old)
        mine, theirs = ([_text(line) for line in line_diff.split(side)] for side in (old, new))
        matcher = difflib.SequenceMatcher(None, mine, theirs, autojunk=len(mine) > 2000)
        diff = [f"--- {path} ({since})", f"+++ {path} ({tree.version})"]
        for group in matcher.get_grouped_opcodes(_BESIDE):
            first, last = group[0][1] + 1, group[-1][2]
            if any(first <= end and start <= last for start, end in extents):
                diff += _hunk(group, mine, theirs)
        if len(diff) > 2:
            yield History(path=path, since=since, diff=tuple(diff))


def _extents(places: Sequence[HunkView], data: bytes) -> list[tuple[int, int]]:
    """Return the first and last line of what the hunks are in: a class or function, else themselves."""
    try:
        known = scopes.read_scopes(data)
    except UnparsableError:
        known = scopes.Scopes(scopes=())
    extents = []
    for place in places:
        if place.line is None:
            continue
        size = sum(not line.startswith("+") for line in place.lines)
        extents.append((place.line, place.line + size))
        homes = (known.find(name) for name in (place.scope or "").split(" | "))
        extents += [(home.start, home.end) for home in homes if home is not None]
    return extents


def _hunk(
    group: Sequence[tuple[str, int, int, int, int]], old: Sequence[str], new: Sequence[str]
) -> Iterator[str]:
    first, last = group[0], group[-1]
    sizes = last[2] - first[1], last[4] - first[3]
    yield f"@@ -{first[1] + 1},{sizes[0]} +{first[3] + 1},{sizes[1]} @@"
    for tag, i, j, k, m in group:
        if tag == "equal":
            yield from (f" {line}" for line in old[i:j])
        else:
            yield from (f"-{line}" for line in old[i:j])
            yield from (f"+{line}" for line in new[k:m])


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")
