"""Three-way merge of lines, with one algorithm of our own. Pure.

As in diff3 (Khanna, Kunal, Pierce, "A formal investigation of diff3", 2007): what neither side changed is
stable; between two stable stretches one side may have changed the base, or both the same way, and
anything else is a clash. Changes that touch clash, as they do in git.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff

Lines = tuple[bytes, ...]


class Clash(NamedTuple):
    """Lines that both sides changed, each in its own way."""

    ours: Lines
    base: Lines
    theirs: Lines


Stretches = list[Lines | Clash]


def merge(base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]) -> Stretches:
    """Return the merged stretches in order."""
    to_ours = dict(line_diff.matching(base, ours))
    to_theirs = dict(line_diff.matching(base, theirs))
    stable = [i for i in range(len(base)) if i in to_ours and i in to_theirs]
    i = a = b = 0
    common: list[bytes] = []
    merged: Stretches = []
    for k in (*stable, len(base)):
        x, y = to_ours.get(k, len(ours)), to_theirs.get(k, len(theirs))
        part = _resolved(tuple(ours[a:x]), tuple(base[i:k]), tuple(theirs[b:y]))
        if isinstance(part, Clash):
            if common:
                merged.append(tuple(common))
                common = []
            merged.append(part)
        else:
            common += part
        common += base[k : k + 1]
        i, a, b = k + 1, x + 1, y + 1
    return [*merged, tuple(common)] if common else merged


def clean(merged: Sequence[Lines | Clash]) -> bytes | None:
    """Return the merged text, None if anything clashes."""
    if any(isinstance(one, Clash) for one in merged):
        return None
    return b"".join(line for one in merged for line in one if isinstance(line, bytes))


def marked(merged: Sequence[Lines | Clash], ours: str, base: str, theirs: str) -> bytes:
    """Return the merged text with both sides and the base around markers, as git's diff3 style has it."""
    out: list[bytes] = []
    for part in merged:
        if not isinstance(part, Clash):
            out += part
            continue
        for marker, name, side in (
            (b"<<<<<<<", ours, part.ours),
            (b"|||||||", base, part.base),
            (b"=======", "", part.theirs),
        ):
            out.append(marker + (f" {name}".encode() if name else b"") + b"\n")
            out += [line if line.endswith(b"\n") else line + b"\n" for line in side]
        out.append(b">>>>>>> %s\n" % theirs.encode())
    return b"".join(out)


def _resolved(ours: Lines, base: Lines, theirs: Lines) -> Lines | Clash:
    if ours in {base, theirs}:
        return theirs
    return ours if theirs == base else Clash(ours, base, theirs)
