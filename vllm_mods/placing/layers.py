"""Hunks in a file that other mods have changed. Pure."""

from collections.abc import Sequence
from functools import partial

from vllm_mods.base import line_diff
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.placing.answers import Located, Lost
from vllm_mods.placing.locate import scope_of
from vllm_mods.placing.target import Target


def place_through(
    file: FileDiff,
    answers: tuple[Located | Lost, ...],
    below: tuple[Located | Lost, ...],
    beneath: bytes,
    target: Target,
    *,
    others: str,
) -> tuple[Located | Lost, ...]:
    """Place hunks in a file that ``others``, mods too, have changed by where they go in the file ``beneath``: ``below``, carried along.

    Where they have places both ways, these have to be the same. One that has a place beneath alone was written for lines
    that another mod has changed.
    """
    carried = _carry(file.hunks, below, beneath, target)
    if carried is None:
        return tuple(map(partial(_changed_by, others), answers, below))
    here = [answer.line if isinstance(answer, Located) else None for answer in answers]
    if None not in here:
        wrong = next((i for i, line in enumerate(here) if line != carried[i].line), None)
        if wrong is None:
            return carried
        message = f"its text is at line {here[wrong]}, but after the changes of other mods it belongs at line {carried[wrong].line}"
        lost = Lost(FindingCode.ELSEWHERE, message, carried[wrong].scope or None)
        return (*answers[:wrong], lost, *answers[wrong + 1 :])
    strong = all(place.proof in {"file", "scope", "stated"} for place in carried)
    return carried if strong else answers


def _changed_by(mod: str, answer: Located | Lost, below: Located | Lost) -> Located | Lost:
    if isinstance(answer, Located) or isinstance(below, Lost):
        return answer
    message = f"{mod}, which is applied first, changes the same lines (without {mod}, this hunk belongs at line {below.line})"
    scope = below.scope.split(" | ")[0]
    return Lost(FindingCode.CONFLICTING_MOD, message, scope or None, (below.line,))


def _carry(
    hunks: Sequence[Hunk], below: tuple[Located | Lost, ...], beneath: bytes, target: Target
) -> tuple[Located, ...] | None:
    """Carry places along what changed since; None if one of them is none, or its lines have changed."""
    pairs = dict(line_diff.matching(line_diff.split(beneath), target.lines))
    carried: list[Located] = []
    for hunk, place in zip(hunks, below, strict=True):
        if isinstance(place, Lost):
            return None
        first = pairs.get(place.line - 1)
        rows = range(len(hunk.old))
        if first is None or any(pairs.get(place.line - 1 + n) != first + n for n in rows):
            return None
        carried.append(Located(first + 1, scope_of(hunk, target, first + 1), place.proof))
    return tuple(carried)
