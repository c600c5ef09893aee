"""Three-way merge of outlines: what is in a class or function meets its namesake only. Pure.

The lines of each definition are merged by themselves, with the definitions in it as one line each.
So a change cannot land in another function, however alike the two are, and definitions may change
their order. What cannot be told for certain is a problem, named with its scope.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.diff3 import Clash, Lines, Stretches
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.porting.follow import Followed
from vllm_mods.porting.outline import Outline, is_mark, within

Merge = Callable[[Sequence[bytes], Sequence[bytes], Sequence[bytes]], Stretches]
MARKED = frozenset({FindingCode.CLASH, FindingCode.DISAGREE, FindingCode.BOTH_ADD})
"""Codes of the problems that a conflict marker shows."""


class Ported(NamedTuple):
    """A file ported, or what stands in the way.

    ``text`` is None if there are ``problems``; ``stretches`` are then what was merged and what clashes. ``proof`` is
    ``file`` where a merge of the whole file gives the same bytes as one by scopes, ``scopes`` where the whole file
    clashes elsewhere and two merges of the scopes agree, ``statements`` where lines clash and statements do not.
    ``touched`` are the scopes that the mod changes, ``followed`` those that are elsewhere by now.
    """

    text: bytes | None
    stretches: Stretches
    problems: tuple[Finding, ...] = ()
    touched: tuple[str, ...] = ()
    proof: str | None = None
    followed: tuple[Followed, ...] = ()


def merge(base: Outline, ours: Outline, theirs: Outline, merge_lines: Merge) -> Ported:
    """Merge what the mod does (``base`` to ``ours``) with what the target has (``theirs``)."""
    merger = _Merger(merge_lines)
    joined = _join(merger.outline(base, ours, theirs, ""))
    text = None if merger.problems else diff3.clean(joined)
    return Ported(text, joined, tuple(merger.problems), tuple(touched(base, ours)))


def touched(base: Outline, ours: Outline, scope: str = "") -> list[str]:
    """Return the dotted chains of the definitions whose own lines differ; ``""`` is module level."""
    scopes = [scope] if base.lines != ours.lines else []
    mine = {one.key: one for one in ours.inner}
    for inner in base.inner:
        if inner.key in mine:
            scopes += touched(inner, mine[inner.key], within(scope, inner.name))
    return scopes


_Sides = tuple[dict[bytes, Outline], dict[bytes, Outline], dict[bytes, Outline]]
"""What is in a definition of the base, of the mod and of the target, by mark."""


class _Merger:
    def __init__(self, merge_lines: Merge) -> None:
        self.merge_lines = merge_lines
        self.problems: list[Finding] = []

    def outline(self, base: Outline, ours: Outline, theirs: Outline, scope: str) -> Stretches:
        if _same(ours, base):
            return [tuple(theirs.flat())]
        merged = self.lines(base.lines, ours.lines, theirs.lines)
        if any(isinstance(one, Clash) for one in merged):
            self.problem(FindingCode.CLASH, scope, "the target changed the same lines")
        elif self.twice(base.lines, ours.lines, theirs.lines, merged):
            why = "the target already has these lines at another place; `port` does not add them twice"
            self.problem(FindingCode.TWICE, scope, why)
        in_base, in_ours, in_theirs = sides = base.marked, ours.marked, theirs.marked
        self.lost(sides, scope)
        out: Stretches = []
        for stretch in merged:
            if isinstance(stretch, Clash):
                out.append(Clash(*map(_whole, stretch, (in_ours, in_base, in_theirs))))
                continue
            for line in stretch:
                out += self.inner(line, sides, scope) if is_mark(line) else [(line,)]
        return out

    def lines(self, base: Lines, ours: Lines, theirs: Lines) -> Stretches:
        if ours == base:
            return [theirs]
        if theirs in {base, ours}:
            return [ours]
        return self.merge_lines(base, ours, theirs)  # a process of git each

    def inner(self, line: bytes, sides: _Sides, scope: str) -> Stretches:
        base, ours, theirs = (side.get(line) for side in sides)
        if base is not None and ours is not None and theirs is not None:
            return self.outline(base, ours, theirs, within(scope, base.name))
        if ours is None or theirs is None:
            only = ours or theirs
            assert only is not None  # noqa: S101  (the line came from one of them)
            return [tuple(only.flat())]
        if not _same(ours, theirs):
            why = "the mod and the target both add a definition of this name, and the two differ"
            self.problem(FindingCode.BOTH_ADD, within(scope, ours.name), why)
            return [Clash(tuple(ours.flat()), (), tuple(theirs.flat()))]
        return [tuple(theirs.flat())]

    def lost(self, sides: _Sides, scope: str) -> None:
        """Find definitions that one side changed and the other has not got, or has several times."""
        in_base, in_ours, in_theirs = sides
        for line, old in in_base.items():
            name = within(scope, old.name)
            ours, theirs = in_ours.get(line), in_theirs.get(line)
            if ours is None:
                if theirs is not None and not _same(old, theirs):
                    message = "the mod removes code that the target changed"
                    self.problem(FindingCode.REMOVED, name, message)
            elif not _same(old, ours):
                count = sum(other.name == old.name for other in in_theirs.values())
                before = sum(other.name == old.name for other in in_base.values())
                if not count:
                    self.problem(FindingCode.GONE, name, "the target has no such class or function")
                elif count != before or theirs is None:
                    message = f"the target defines {name} {count} times, but the base (where the patch was made) {before}"
                    self.problem(FindingCode.AMBIGUOUS, name, message)

    def twice(self, base: Lines, ours: Lines, theirs: Lines, merged: Stretches) -> bool:
        """Tell whether both sides added the same lines, at places of which the merge made two."""
        out = [line for one in merged for line in one if isinstance(line, bytes)]
        more = Counter(out) - (Counter(ours) | Counter(theirs))
        for _, _, k, m in line_diff.changes(base, ours):
            filled = {line for line in ours[k:m] if _says_something(line)}
            if filled and filled <= more.keys():
                return True
        return False

    def problem(self, code: FindingCode, scope: str, message: str) -> None:
        self.problems.append(Finding(code, message, scope=scope))


def _same(old: Outline, new: Outline) -> bool:
    if old.lines != new.lines or len(old.inner) != len(new.inner):
        return False
    return all(x.key == y.key and _same(x, y) for x, y in zip(old.inner, new.inner, strict=True))


def _says_something(line: bytes) -> bool:
    return is_mark(line) or sum(chr(char).isalnum() for char in line) > 3


def _whole(side: Lines, inner: dict[bytes, Outline]) -> Lines:
    flat = (inner[line].flat() if line in inner else (line,) for line in side)
    return tuple(text for lines in flat for text in lines)


def _join(stretches: Stretches) -> Stretches:
    out: Stretches = []
    for stretch in stretches:
        last = out[-1] if out else None
        if isinstance(stretch, Clash) or last is None or isinstance(last, Clash):
            out.append(stretch)
        else:
            out[-1] = (*last, *stretch)
    return out
