"""What is read by people alone, docstrings and comments, merged word by word. Pure."""

from __future__ import annotations

import re

from vllm_mods.base import line_diff
from vllm_mods.porting.layout import BothChangedError, Splice

_WORD = re.compile(rb"\"\"\"|'''|(?:(?!\"\"\"|''')\S)+")


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes:
    """Change the words of the target's text as the mod does, and the blanks that the target has left as they were.

    Raises ``BothChangedError`` where changes of words touch.
    """
    spans = [list(_WORD.finditer(one)) for one in (base, ours, theirs)]
    b, o, t = ([one[0] for one in some] for some in spans)
    places = dict(line_diff.matching(b, t)) | {-1: -1, len(b): len(t)}
    edits = []
    for i, j, k, m in line_diff.changes(b, o):
        before = places.get(i - 1)
        if before is None or [places.get(n) for n in range(i, j + 1)] != [
            *range(before + 1, before + 2 + j - i)
        ]:
            raise BothChangedError
        edits.append(_edit(spans[1], spans[2], (k, m), (before + 1, before + 1 + j - i), ours))
    for n, x in line_diff.matching(b, o):
        if n in places:
            old, new, now = (
                _gap(*one)
                for one in zip(spans, (n, x, places[n]), (base, ours, theirs), strict=True)
            )
            if old == now != new:
                word = spans[2][places[n]].start()
                edits.append(Splice(word - len(now), word, new))
    for edit in sorted(edits, reverse=True):
        theirs = theirs[: edit.start] + edit.text + theirs[edit.end :]
    return theirs


def _edit(
    mine: list[re.Match[bytes]],
    theirs: list[re.Match[bytes]],
    new: tuple[int, int],
    old: tuple[int, int],
    text: bytes,
) -> Splice:
    """Put words in the place of others; what is added goes in with the blanks before it, what goes takes them along."""
    (k, m), (i, j) = new, old
    if i < j and k < m:
        return Splice(
            theirs[i].start(), theirs[j - 1].end(), text[mine[k].start() : mine[m - 1].end()]
        )
    start = theirs[i - 1].end() if i else 0
    end = theirs[j - 1].end() if i < j else start
    return Splice(
        start, end, text[mine[k - 1].end() if k else 0 : mine[m - 1].end()] if k < m else b""
    )


def _gap(spans: list[re.Match[bytes]], n: int, text: bytes) -> bytes:
    """Return the blanks before a word."""
    return text[spans[n - 1].end() if n else 0 : spans[n].start()]
