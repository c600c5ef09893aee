"""Which lines two texts have in common. Pure.

Lines that occur once in each text are matched first, as far as they are in the same order (Bram Cohen's patience diff),
then what lies between them: so a class is not matched with the one behind it because both end alike.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from vllm_mods.base import limits


def matching(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the pairs of indexes of lines that stay, in order."""
    size = min(len(before), len(after))
    head = next((n for n in range(size) if before[n] != after[n]), size)
    size -= head
    tail = next((n for n in range(size) if before[-1 - n] != after[-1 - n]), size)
    end, new_end = len(before) - tail, len(after) - tail
    between = _between(before[head:end], after[head:new_end])
    return [
        *((n, n) for n in range(head)),
        *((head + i, head + k) for i, k in between),
        *((end + n, new_end + n) for n in range(tail)),
    ]


def changes(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(i, j, k, l)`` for each place where ``before[i:j]`` became ``after[k:l]``."""
    i = k = 0
    for x, y in (*matching(before, after), (len(before), len(after))):
        if x > i or y > k:
            yield i, x, k, y
        i, k = x + 1, y + 1


def _between(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of two texts that begin and end differently."""
    if not before or not after:
        return
    anchors = _anchors(before, after)
    if not anchors:
        yield from _by_size(before, after)
        return
    i = k = 0
    for x, y in anchors:
        if i < x and k < y:  # most anchors follow each other
            yield from ((i + n, k + m) for n, m in matching(before[i:x], after[k:y]))
        yield x, y
        i, k = x + 1, y + 1
    yield from ((i + n, k + m) for n, m in matching(before[i:], after[k:]))


def _anchors(before: Sequence[bytes], after: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the longest run, in order, of lines that occur once on each side."""
    counts, others = Counter(before), Counter(after)
    places = {line: n for n, line in enumerate(after) if others[line] == 1}
    pairs = [
        (n, places[line]) for n, line in enumerate(before) if counts[line] == 1 and line in places
    ]
    # longest increasing subsequence of the second numbers, by piles
    tops: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for index, (_, place) in enumerate(pairs):
        pile = bisect_left(tops, place)
        back.append(ends[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [place]
        ends[pile : pile + 1] = [index]
    anchors = []
    index = ends[-1] if ends else -1
    while index >= 0:
        anchors.append(pairs[index])
        index = back[index]
    return anchors[::-1]


def _by_size(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Match the longest equal runs: what is left has no line of its own."""
    import difflib  # noqa: PLC0415  (slow to import)

    if not is_quick(before, after):
        return  # all of it changed, then: longer than need be, and as true
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from ((block.a + n, block.b + n) for n in range(block.size))


def is_quick(before: Sequence[bytes], after: Sequence[bytes]) -> bool:
    """Tell whether ``difflib`` would soon be done: it looks at each pair of equal lines, many times."""
    counts = Counter(after)
    return sum(counts[line] for line in before) <= limits.EQUAL_PAIRS


def split(data: bytes) -> tuple[bytes, ...]:
    """Split into lines that keep their line feed; nothing else ends a line."""
    return tuple(re.findall(rb"[^\n]*\n|[^\n]+", data))
