"""The place in a file that is most like a hunk's, and what is different there. Pure."""

import difflib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base.line_diff import is_quick
from vllm_mods.formats.diff import Hunk
from vllm_mods.placing.target import Target, shown

_WIDEST = 70
_MOST_COMPARED = 5_000


class Near(NamedTuple):
    """The place most like a hunk's: 1-based ``line`` of the first difference, what it is, ``start``."""

    line: int
    words: str
    start: int


def nearest(hunk: Hunk, target: Target, scope: str | None) -> Near | None:
    """Return the place with most of the hunk's lines, of several the one nearest to the stated line, and what differs.

    Looks inside the first scope that the hunk was written in when the file still has it, if need be by its last name.
    """
    lines = target.lines
    first, last = 0, len(lines)
    if scope and target.scopes is not None:
        name = scope.split(" | ")[0]
        ends = [one for one in target.scopes.definitions if one.name.endswith(f".{name}")]
        if home := target.scopes.find(name) or (ends[0] if len(ends) == 1 else None):
            first, last = home.start - 1, home.end
    wanted = [text.rstrip(b"\r\n") for text in hunk.old]
    stretch = [text.rstrip(b"\r\n") for text in lines[first:last]]
    if not is_quick(stretch, wanted):
        return None
    known = {text for text in wanted if text.strip()}
    shared = [(n, text) for n, text in enumerate(stretch, first) if text in known]
    votes = Counter(n - i for i, want in enumerate(wanted) for n, text in shared if text == want)
    if not votes:
        return _alike(wanted, stretch, first)
    start = min(votes, key=lambda at: (-votes[at], abs(at + 1 - hunk.old_start)))
    for i, want in enumerate(wanted):
        line = start + i
        have = lines[line].rstrip(b"\r\n") if 0 <= line < len(lines) else None
        if have != want:
            number = max(line, 0) + 1
            few = f"only {votes[start]} of its {len(wanted)} lines are in the file; "
            words = few * (votes[start] * 4 < len(wanted)) + _difference(number, have, want)
            return Near(number, words, max(start, 0) + 1)
    return Near(start + 1, f"line {start + 1} differs only in its line ending", start + 1)


def _alike(wanted: Sequence[bytes], stretch: Sequence[bytes], first: int) -> Near | None:
    """Return the line that is most like one of a hunk's where none is the same."""
    lines = {shown(text): n for n, text in enumerate(stretch, first + 1) if text.strip()}
    if len(lines) * len(wanted) > _MOST_COMPARED:
        return None
    for want in sorted(wanted, key=len, reverse=True):
        for like in difflib.get_close_matches(shown(want), lines, n=1):
            line = lines[like]
            none = "none of its lines is in the file; most similar: " * (len(wanted) > 1)
            return Near(line, none + _difference(line, like.encode(), want), line)
    return None


def _difference(line: int, have: bytes | None, want: bytes) -> str:
    shown = "the end of the file" if have is None else f"`{_clip(have)}`"
    return f"line {line} is {shown}, but the patch has `{_clip(want)}`"


def _clip(line: bytes) -> str:
    text = shown(line).strip()
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
