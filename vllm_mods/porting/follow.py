"""Where the target has what a mod changes: another file, another name, another place in the file.

By definition first, then by likeness, and never without saying so: whoever ports reads what was
followed, with how much of the old text the new place still has.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.tree import Tree
from vllm_mods.placing import relocation
from vllm_mods.porting import outline
from vllm_mods.porting.outline import Outline

_LIKE = 0.5
"""How much of a definition has to be there under another name for it to be the same one."""
_AHEAD = 0.15
"""By how much it has to be more alike than the next one."""


class Followed(NamedTuple):
    """Something that is elsewhere by now: places as ``path: dotted.scope``, ``likeness`` 0 to 1."""

    old: str
    new: str
    likeness: float

    @property
    def how(self) -> str:
        """What says so."""
        return f"{self.likeness:.0%} alike"


def home(
    tree: Tree, path: str, base: bytes, names: Sequence[str], old: Tree | None = None
) -> tuple[Followed, bytes] | None:
    """Find the file that ``path`` became, and its bytes: it defines all of ``names``, and most like it.

    ``names`` are top-level definitions, ``old`` is the tree that ``base`` is from. None if there is none, or two are as good.
    """
    before = outline.read(base)
    wanted = {one.name: one for one in before.inner if one.name in names} if before else {}
    places = []
    for other in relocation.defining(tree, path, tuple(wanted), old):
        data = tree.read(other) or b""
        after = outline.read(data)
        theirs = {one.name: one for one in after.inner} if after is not None else {}
        if wanted and wanted.keys() <= theirs.keys():
            score = sum(likeness(one, theirs[name]) for name, one in wanted.items()) / len(wanted)
            places.append((Followed(path, other, score), data))
    places.sort(key=lambda place: -place[0].likeness)
    return places[0] if _is_one([one.likeness for one, _ in places], _LIKE / 2) else None


def _is_one(scores: Sequence[float], least: float) -> bool:
    """Tell whether the first of some likenesses, the greatest first, is enough and ahead of the next one."""
    if not scores or scores[0] < least:
        return False
    return len(scores) == 1 or scores[0] - scores[1] >= _AHEAD


def with_names(node: Outline, chain: tuple[str, ...], key: str) -> Outline:
    """Give the definition at the end of a chain the key of another."""
    first, rest = chain[0], chain[1:]
    if not rest:
        marks = {outline.mark(first): outline.mark(key)}
        lines = tuple(marks.get(line, line) for line in node.lines)
        inner = tuple(i._replace(key=key) if i.key == first else i for i in node.inner)
        return node._replace(lines=lines, inner=inner)
    inner = tuple(with_names(i, rest, key) if i.key == first else i for i in node.inner)
    return node._replace(inner=inner)


def likeness(first: Outline, other: Outline) -> float:
    """Return the share of lines, without those that say nothing, that two definitions have in common."""
    bodies = (list(side.flat())[1:] for side in (first, other))
    mine, theirs = ([text for line in body if (text := line.strip())] for body in bodies)
    if not mine or not theirs:
        return 0.0
    return 2 * len(line_diff.matching(mine, theirs)) / (len(mine) + len(theirs))


def renamed(
    base: Outline, ours: Outline, theirs: Outline, chain: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Followed]]:
    """Find definitions that the mod changes and the target has under another name in the same place.

    Yields for each the chain of keys that leads there, its own last, and where it is:
    ``new`` is the key of the target's.
    """
    mine = {one.key: one for one in ours.inner}
    target = {one.key: one for one in theirs.inner}
    known = {one.key for one in base.inner}
    for old in base.inner:
        if old.key not in mine or mine[old.key].text() == old.text():
            continue
        if old.key in target:
            yield from renamed(old, mine[old.key], target[old.key], (*chain, old.key))
            continue
        if any(other.name == old.name for other in theirs.inner):
            continue  # several of that name, in one of the two
        kind = _kind(old)
        new = [other for key, other in target.items() if key not in known and _kind(other) == kind]
        scores = sorted(((likeness(old, other), other.key) for other in new), reverse=True)
        if _is_one([score for score, _ in scores], _LIKE):
            score, key = scores[0]
            yield (*chain, old.key), Followed(old.key, key, score)


def _kind(node: Outline) -> bytes:
    head = next((line.split() for line in node.lines if not line.lstrip().startswith(b"@")), [])
    return b"class" if head[:1] == [b"class"] else b"def"


def definition(node: Outline, scope: str) -> Outline | None:
    """Return the one definition with a dotted chain, None if there is none or there are several."""
    nodes = [node]
    for name in scope.split("."):
        nodes = [inner for outer in nodes for inner in outer.inner if inner.name == name]
    return nodes[0] if len(nodes) == 1 else None
