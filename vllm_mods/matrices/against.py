"""What a change of vLLM does to mods: two columns of a matrix, and the lines that changed under their hunks. And since an earlier matrix."""

# Without `from __future__ import annotations`, as `cell`.

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import groupby, islice
from keyword import kwlist
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Finding, Level, Mod, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats.schema import decode, object_of
from vllm_mods.matrices.cell import Cell, HunkView, MatrixResult
from vllm_mods.matrices.ranges import is_wanted

if TYPE_CHECKING:
    from vllm_mods.trees.git import Commit

_SHOWN = 6  # lines of an edit, of each side
_FILE = re.compile(r"\bvllm/[\w/]+\.py\b")


class Effect(StrEnum):
    """What a change does to a mod. ``UNTOLD``: one of the trees could not be read."""

    WORSE = "worse"
    BETTER = "better"
    NEEDS_PORT = "needs-port"
    UNTOLD = "untold"


class Edit(NamedTuple):
    """Lines of vLLM that a change removed and added, the first of each.

    ``path`` and ``line`` are in the newer tree; in the older one where the newer has no such file. ``hunk`` names
    the hunk that they stand under, and is empty where a mod only names them. ``commits`` touch the file.
    """

    hunk: str
    path: str
    line: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    commits: tuple[str, ...] = ()


class AffectedMod(NamedTuple):
    """What a change does to a mod: its cells in the older tree and the newer one, and the lines that did it."""

    effect: Effect
    before: Cell
    after: Cell
    edits: tuple[Edit, ...] = ()


class AgainstResult(NamedTuple):
    """What became of mods between the trees ``base`` and ``head``.

    ``same`` are mods that go in as before, ``unwanted`` those that are not meant for ``head``.
    """

    base: str
    head: str
    affected: tuple[AffectedMod, ...]
    same: tuple[str, ...]
    unwanted: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every mod could be looked at, and none got worse."""
        return all(one.effect in {Effect.BETTER, Effect.NEEDS_PORT} for one in self.affected)


class _EarlierCell(NamedTuple):
    mod: str
    tree: str
    verdict: Verdict
    computed: bool


class Earlier(NamedTuple):
    """An earlier matrix: its day, or what its file is called."""

    name: str
    cells: tuple[_EarlierCell, ...]


class Change(NamedTuple):
    """Two trees; of two revisions of a clone also the paths of files that were renamed, and the commits between them."""

    older: Tree
    newer: Tree
    renames: Mapping[str, str] = {}
    commits: "tuple[Commit, ...]" = ()


def compare(base: str, head: str, mods: Sequence[Mod], cells: Sequence[Cell]) -> AgainstResult:
    """Compare the cells of two trees: of each tree one for each mod, in order."""
    affected: list[AffectedMod] = []
    same, unwanted = [], []
    for mod, before, after in zip(mods, cells, cells[len(mods) :], strict=False):
        effect = _effect(before, after)
        if not is_wanted(mod, after):
            unwanted.append(mod.name)
        elif effect is None:
            same.append(mod.name)
        else:
            affected.append(AffectedMod(effect, before, after))
    return AgainstResult(base, head, tuple(affected), tuple(same), tuple(unwanted))


def _effect(before: Cell, after: Cell) -> Effect | None:
    """Tell what became of a mod, None where nothing did. It is better that vLLM carries it than that it goes in."""
    if not (before.readable and after.readable):
        return Effect.UNTOLD
    verdicts = (before.verdict, after.verdict)
    was, now = (verdict.ok + (verdict.ok and not verdict.writes) for verdict in verdicts)
    if was == now:
        return None if now else Effect.NEEDS_PORT
    return Effect.WORSE if now < was else Effect.BETTER


def read_earlier(path: str, data: bytes) -> Earlier:
    """Read a matrix that was written in JSON. Raises ``ManifestError``."""
    hint = f"less {path}  # is this what `matrix --json` prints?"
    name = path.rpartition("/")[2].removesuffix(".json")
    return decode(Earlier, object_of(data, path, hint) | {"name": name}, path, hint=hint, more=True)


def since(earlier: Earlier, result: MatrixResult) -> Iterator[AffectedMod]:
    """Yield what got better or worse: each tree against itself as it was, a new one against the tree before it."""
    then = {(one.mod, one.tree): one._asdict() for one in earlier.cells}
    was: dict[str, Cell] = {}
    for tree, cells in groupby(result.cells, lambda cell: cell.tree):
        now = {cell.mod: cell for cell in cells}
        was = {m: now[m]._replace(**then[m, tree]) for m in now if (m, tree) in then} or was
        mods = [mod for mod in result.mods if mod.name in was]
        both = [side[mod.name] for side in (was, now) for mod in mods]
        for one in compare("", tree, mods, both).affected:
            if one.effect is not Effect.NEEDS_PORT and one.before.word != one.after.word:
                yield one
        was = {name: now[name] for name in was}


def look_closer(one: AffectedMod, change: Change) -> AffectedMod:
    """Return a mod with the edits that made it worse or better. Raises ``TreeError``."""
    is_back = one.effect is Effect.BETTER  # then its hunks stand in the newer tree
    if not is_back and one.effect is not Effect.WORSE:
        return one
    own = one.after if is_back else one.before
    absent = "+" if own.verdict.writes else "-"
    edits = [edit for hunk in own.hunks for edit in _under(hunk, change, absent, is_back=is_back)]
    if not edits and not is_back:
        edits = [*islice(_of_names(one.after.findings, own.hunks, change), 1)]
    return one._replace(edits=tuple(edits))


def _under(hunk: HunkView, change: Change, absent: str, *, is_back: bool) -> Iterator[Edit]:
    """Yield what changed of the lines that a hunk has in its tree: all of its own but those with the sign ``absent``."""
    name, path = f"hunk {hunk.number} of {hunk.patch}", hunk.path
    if is_back:
        path = next((old for old, new in change.renames.items() if new == path), path)
    start = (hunk.line or 1) - 1
    end = start + sum(line[0] != absent for line in hunk.lines)
    is_same = path not in change.renames
    for i, j, k, n in line_diff.changes(*_texts(path, change)):
        first, last = (k, n) if is_back else (i, j)
        if (first < end and last > start) or end == 0:
            is_same = True
            skipped = max(start - first, 0)
            yield _edit(name, path, change, (i + skipped, j, k + skipped, n))
    if not is_same:  # the hunk has its lines there, and the file another name
        yield _edit(name, path, change, (start, start, start + 1, start + 1))


def _of_names(
    findings: Sequence[Finding], hunks: Sequence[HunkView], change: Change
) -> Iterator[Edit]:
    """Yield changed lines with a name that both a hunk and a finding use, first in the files that findings name."""
    errors = [one for one in findings if one.level is Level.ERROR]
    paths = [path for one in errors for path in (one.path, *_FILE.findall(one.message)) if path]
    added = (line for hunk in hunks for line in hunk.lines if line[0] == "+")
    words = _words(one.message for one in errors) & _words(added) - _words(paths) - {*kwlist}
    wanted = re.compile(rf"\b(?:{'|'.join(words) or '(?!)'})\b".encode())
    changed = {path for one in change.commits for path in one.paths if path.endswith(".py")}
    for path in dict.fromkeys((*paths, *sorted(changed))):
        with suppress(TreeError):  # a link
            old, new = _texts(path, change)
            for i, j, k, n in line_diff.changes(old, new):
                for at in (at for at in range(i, j) if wanted.search(old[at])):
                    yield _edit("", path, change, (at, j, k + at - i, n))


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _texts(path: str, change: Change) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the lines of a file in both trees, by its older path."""
    older, newer = change.older.read(path), change.newer.read(change.renames.get(path, path))
    return line_diff.split(older or b""), line_diff.split(newer or b"")


def _edit(hunk: str, path: str, change: Change, place: tuple[int, int, int, int]) -> Edit:
    """Return an edit by its place: from where to where in the older text, and in the newer one."""
    i, j, k, n = place
    old, new = _texts(path, change)
    path, line = (change.renames.get(path, path), min(k, max(n, 1) - 1)) if new else (path, i)
    removed, added = (
        tuple(text.decode("utf-8", "replace").rstrip() for text in texts[:_SHOWN])
        for texts in (old[i:j], new[k:n])
    )
    commits = (one for one in change.commits if path in one.paths)
    lines = tuple(f"{one.sha[:12]} {one.date[:10]} {one.subject}" for one in commits)
    return Edit(hunk, path, line + 1, removed, added, lines)
