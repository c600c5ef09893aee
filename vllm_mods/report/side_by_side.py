"""A hunk beside the target: which of its lines stands beside which line of the file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from vllm_mods.matrices.cell import HunkView

Pair = tuple[int | None, int | None]
"""An index into the hunk's lines and one into the target's; None where nothing is beside it."""


def pairs(view: HunkView) -> tuple[Pair, ...]:
    """Return the rows of a hunk and its target, each line of both once and in order.

    What the hunk takes away or keeps stands beside the target's lines; if it is in already, what
    it adds does. Lines in one row need not be equal: where the hunk has no place, the lines that
    differ stand beside each other.
    """
    target = [text for _, text in view.target]
    first = max(0, view.line - view.target[0][0]) if view.line is not None and target else 0
    sides = [
        [at for at, line in enumerate(view.lines) if line[0] in kinds] for kinds in (" -", " +")
    ]
    for side in sides:
        start = _start([view.lines[at][1:] for at in side], target, first)
        if start is not None:
            beside = {line: start + at for at, line in enumerate(side)}
            break
    else:
        matched = _matched([view.lines[at][1:] for at in sides[0]], target)
        beside = {sides[0][at]: line for at, line in matched.items()}
    return tuple(_rows(len(view.lines), len(target), beside))


def _start(text: list[str], target: list[str], first: int) -> int | None:
    """Return where the whole text stands in the target: at ``first``, or the first place of all."""
    places = (first, *range(len(target) - len(text) + 1))
    return next((at for at in places if target[at : at + len(text)] == text), None)


def _matched(text: Sequence[str], target: Sequence[str]) -> dict[int, int]:
    """Pair equal lines; and what lies between two pairs, as far as both sides have lines there.

    What lies before the first pair is paired from its end.
    """
    beside: dict[int, int] = {}
    for tag, a, a_end, b, b_end in SequenceMatcher(
        None, text, target, autojunk=False
    ).get_opcodes():
        if tag in {"equal", "replace"}:
            count = min(a_end - a, b_end - b)
            from_a, from_b = (a_end - count, b_end - count) if a == 0 else (a, b)
            beside.update((from_a + at, from_b + at) for at in range(count))
    return beside


def _rows(lines: int, target: int, beside: dict[int, int]) -> Iterator[Pair]:
    done = 0
    for line in range(lines):
        at = beside.get(line)
        if at is not None:
            yield from ((None, other) for other in range(done, at))
            done = at + 1
        yield line, at
    yield from ((None, other) for other in range(done, target))
