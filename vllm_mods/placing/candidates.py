"""Where each hunk of a file could go by its text, the edges of the file, and the order of the hunks. Pure."""

from collections.abc import Sequence

from vllm_mods.base import limits
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.formats.diff import Hunk
from vllm_mods.placing.answers import Lost
from vllm_mods.placing.headers import is_below, written_in
from vllm_mods.placing.resemblance import telling
from vllm_mods.placing.target import Target, matches

_FEW = 3
"""Lines of code that a hunk needs for a place that nothing but its text proves."""


def candidates(hunk: Hunk, target: Target) -> tuple[int, ...] | Lost:
    """Return the lines at which a hunk's text stands, held to the edges that it belongs to."""
    if not hunk.old:
        return (1,) if not target.data else _without_text(hunk)
    written = written_in(hunk)
    lines = matches(target.data, hunk.old)
    if not lines:
        return Lost(FindingCode.ABSENT, "its text is not in the file", written)
    if len(lines) > limits.PLACES:
        message = f"its text matches in more than {limits.PLACES} places"
        return Lost(FindingCode.AMBIGUOUS, message, written, lines)
    held = tuple(line for line in lines if at_edges(hunk, target, line))
    if held:
        return held
    where = ", ".join(f"line {line}" for line in lines[:5])
    message = f"the hunk has less context above than below, so it belongs at the start of the file; but its text is at {where}"
    if all(kind != " " for kind, _ in hunk.lines):
        times = f"occurs {len(lines)} times:" if len(lines) > 1 else "is at"
        message = f"the hunk has no context lines, and its text {times} {where}"
    elif belongs_at_end(hunk):
        message = f"the hunk has less context below than above, so it belongs at the end of the file; but more lines follow its text, which is at {where}"
    return Lost(FindingCode.EDGE, message, written, lines)


def _without_text(hunk: Hunk) -> Lost:
    if hunk.old_start == 0:
        message = "the hunk belongs in an empty file, but this file has lines"
        return Lost(FindingCode.EDGE, message, written_in(hunk))
    message = "the hunk has no context lines, so nothing proves where it belongs"
    return Lost(FindingCode.UNPROVABLE, message, written_in(hunk))


def belongs_at_start(hunk: Hunk) -> bool:
    """Tell whether a hunk is for the first line of its file."""
    return hunk.old_start <= 1 and hunk.lines[0][0] != " "


def belongs_at_end(hunk: Hunk) -> bool:
    """Tell whether nothing follows what a hunk changes."""
    return hunk.lines[-1][0] != " " or not (hunk.new or hunk.old)[-1].endswith(b"\n")


def belongs_at_edge(hunk: Hunk) -> bool:
    """Tell whether a hunk is for the beginning or the end of its file."""
    return belongs_at_end(hunk) or belongs_at_start(hunk)


def at_edges(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether a hunk that belongs at the start or the end of the file is there at this line."""
    ends = line - 1 + len(hunk.old) == len(target.lines)
    return (line == 1 or not belongs_at_start(hunk)) and (ends or not belongs_at_end(hunk))


def is_scant(hunk: Hunk) -> bool:
    """Tell whether a hunk has so few lines of code that the twin of what it was written for may well have the same.

    The end of the file is a place of its own.
    """
    few = min(len(telling(side)) for side in (hunk.old, hunk.new)) < _FEW
    return few and not belongs_at_edge(hunk)


def in_order(
    options: list[tuple[int, ...]], hunks: Sequence[Hunk], lost: dict[int, Lost]
) -> list[tuple[int, ...]]:
    """Leave places that go with those of the other hunks; a hunk without one goes into ``lost``."""
    left = list(options)
    placed = [i for i in range(len(hunks)) if i not in lost]
    first = 0
    for i in placed:
        left[i] = tuple(line for line in left[i] if line >= first)
        if left[i]:
            first = left[i][0] + len(hunks[i].old)
    last: int | None = None
    for i in reversed(placed):
        size = len(hunks[i].old)
        left[i] = tuple(line for line in left[i] if last is None or line + size <= last)
        if left[i]:
            last = left[i][-1]
    for i in placed:
        if not left[i]:
            at = ", ".join(f"line {line}" for line in options[i][:5])
            message = f"its text is only at {at}, in another order than the hunks in the patch"
            lost[i] = Lost(FindingCode.ORDER, message, written_in(hunks[i]), options[i])
    return left


def stands(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell by text alone whether a hunk can stand at this line and nowhere else, header included.

    What a lock says of a place is believed only where the patch itself does not contradict it.
    """
    starts = (start for start in matches(target.data, hunk.old) if at_edges(hunk, target, start))
    return [start for start in starts if is_below(hunk.section, target, start)] == [line]
