"""Which lines two texts have in common. Pure.

Lines that occur once in each text are matched first, as far as they are in the same order (Bram
Cohen's patience diff), then what lies between them: so a class is not matched with the one behind it because both
end alike.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def matching(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the pairs of indexes of lines that stay, in order."""
    return list(_between(before, after, 0, len(before), 0, len(after)))


def changes(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(i, j, k, l)`` for each place where ``before[i:j]`` became ``after[k:l]``."""
    i = k = 0
    for x, y in (*matching(before, after), (len(before), len(after))):
        if x > i or y > k:
            yield i, x, k, y
        i, k = x + 1, y + 1


def _between(
    before: Sequence[bytes], after: Sequence[bytes], i: int, j: int, k: int, m: int
) -> Iterator[tuple[int, int]]:
    while i < j and k < m and before[i] == after[k]:
        yield i, k
        i, k = i + 1, k + 1
    same = 0
    while i < j and k < m and before[j - 1] == after[m - 1]:
        j, m, same = j - 1, m - 1, same + 1
    if i < j and k < m:
        anchors = _anchors(before, after, i, j, k, m)
        if anchors:
            for x, y in (*anchors, (j, m)):
                yield from _between(before, after, i, x, k, y)
                if (x, y) != (j, m):
                    yield x, y
                i, k = x + 1, y + 1
        else:
            yield from _by_size(before, after, i, j, k, m)
    yield from ((j + n, m + n) for n in range(same))


def _anchors(
    before: Sequence[bytes], after: Sequence[bytes], i: int, j: int, k: int, m: int
) -> list[tuple[int, int]]:
    """Return the longest run, in order, of lines that occur once on each side."""
    counts, others = Counter(before[i:j]), Counter(after[k:m])
    places = {line: k + n for n, line in enumerate(after[k:m]) if others[line] == 1}
    pairs = [
        (n, places[before[n]])
        for n in range(i, j)
        if counts[before[n]] == 1 and before[n] in places
    ]
    # longest increasing subsequence of the second numbers, by piles
    tops: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for index, (_, y) in enumerate(pairs):
        pile = bisect_left(tops, y)
        back.append(ends[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [y]
        ends[pile : pile + 1] = [index]
    found = []
    index = ends[-1] if ends else -1
    while index >= 0:
        found.append(pairs[index])
        index = back[index]
    return found[::-1]


def _by_size(
    before: Sequence[bytes], after: Sequence[bytes], i: int, j: int, k: int, m: int
) -> Iterator[tuple[int, int]]:
    """Match the longest equal runs: what is left has no line of its own."""
    import difflib  # noqa: PLC0415  (slow to import)

    matcher = difflib.SequenceMatcher(None, before[i:j], after[k:m], autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from ((i + block.a + n, k + block.b + n) for n in range(block.size))
