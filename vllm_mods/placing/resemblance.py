"""Places of a file that resemble what a hunk expects, though its text does not stand there. Pure.

Where upstream changed the method that a patch was written for and left its twin alone, the twin is the only exact match.
What gives it away is the changed method itself: it still has most of the hunk's lines, in their order, close together.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from vllm_mods.placing.target import Target

MARGIN = 0.7
"""The share of a hunk's lines that another place may have, at most; benchmarks/lookalike.py has what other values cost."""

_WORD = re.compile(rb"\w")
_TOKEN = re.compile(rb"\w+|[^\w\s]")
# A changed line still has so much of what it was.
_MOSTLY = 0.6
# A line that stands everywhere tells no place; the others vote for where the rest of the hunk would begin.
_COMMON = 48
_CANDIDATES = 16


class LookAlike(NamedTuple):
    """A place that has ``score`` (0 to 1) of a hunk's telling lines.

    ``line`` is the 1-based line of the first that it has, and ``at`` which of the expected ones that is; ``above`` is of each
    expected line where it stands (1-based), or else 0.
    """

    score: float
    line: int
    at: int
    above: tuple[int, ...]


def telling(expected: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """Return the lines that have a word, without the blanks around them, each with its index."""
    return [(i, text.strip()) for i, text in enumerate(expected) if _WORD.search(text)]


def look_alikes(expected: Sequence[bytes], target: Target, own: range) -> list[LookAlike]:
    """Return the places beside ``own`` (1-based lines) that have more than ``MARGIN`` of the expected lines, best first."""
    code = telling(expected)
    if not code:
        return []
    where = target.places
    votes: Counter[int] = Counter()
    for i, text in code:
        lines = where.get(text, ())
        if len(lines) <= _COMMON:
            votes.update(line - i for line in lines if line not in own)
    alike: dict[tuple[int, ...], LookAlike] = {}
    for start, _ in votes.most_common(_CANDIDATES):
        match = _align(code, len(expected), target, start, own)
        if match is not None and match.score > MARGIN:
            alike[match.above] = match
    return sorted(alike.values(), key=lambda match: (-match.score, match.line))


def _align(
    code: Sequence[tuple[int, bytes]], size: int, target: Target, start: int, own: range
) -> LookAlike | None:
    """Align lines with those around ``start``, in order, so that they have the most in common."""
    slack = max(size, 6)
    first = max(1, start - slack)
    last = min(len(target.stripped), start + size + slack)
    window = [b"" if line in own else target.stripped[line - 1] for line in range(first, last + 1)]
    if not any(text in window for _, text in code):
        return None
    table = [[0.0] * (len(window) + 1)]
    enough = MARGIN * len(code)
    for left, (_, text) in zip(range(len(code), 0, -1), code, strict=True):
        row, before = [0.0], table[-1]
        if before[-1] + left <= enough:
            return None  # even if it had all lines that are left
        for column, other in enumerate(window):
            best = max(row[-1], before[column + 1])
            shared = _share(text, other)
            row.append(max(best, before[column] + shared) if shared else best)
        table.append(row)
    pairs: dict[int, int] = {}
    n, column = len(code), len(window)
    while n and column:
        if table[n][column] == table[n - 1][column]:
            n -= 1
        elif table[n][column] == table[n][column - 1]:
            column -= 1
        else:
            n, column = n - 1, column - 1
            pairs[code[n][0]] = first + column
    if not pairs:
        return None
    at = min(pairs)
    above = tuple(pairs.get(i, 0) for i in range(size))
    return LookAlike(table[-1][-1] / len(code), pairs[at], at, above)


@lru_cache(maxsize=8192)
def _share(line: bytes, other: bytes) -> float:
    """Return how much of two lines is the same, from 0 to 1; 0 for less than most of them."""
    if line == other:
        return 1.0
    if not 0.4 < len(line) / (len(other) or 1) < 2.5:
        return 0.0
    mine, theirs = _tokens(line), _tokens(other)
    share = 2 * (mine & theirs).total() / (mine.total() + theirs.total() or 1)
    return share if share >= _MOSTLY else 0.0


@lru_cache(maxsize=8192)
def _tokens(line: bytes) -> Counter[bytes]:
    return Counter(_TOKEN.findall(line))
