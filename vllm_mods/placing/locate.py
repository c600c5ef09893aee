"""Where the hunks of one file belong: all of them together, or why not. Pure.

A hunk matches byte for byte or not at all. All hunks of a file are placed together: in their order, not
overlapping, a hunk without trailing context only at the end of the file, one for line 1 without leading
context only at its start (as in git's apply.c and GNU patch without fuzz). Of what is left exactly one
placement has to be proven, by the strongest evidence there is:

``file``    the file is byte for byte the one that the patch was written for (git's ``index`` line, mod.lock),
``scope``   all that encloses the hunk's changes is what they were written in: mod.lock says so, or the patch
            names all of it, in the hunk or behind ``@@`` (git writes the nearest line above that starts in
            column 0, or the nearest definition),
``order``   proven hunks before and behind it leave it one place, and moved as far as it did unless the patch names what
            encloses it,
``stated``  all hunks of the file stand at their stated lines,
``unique``  the only match in the file, and the patch names all definitions around it, or there are none.

The last three, and what names only a part of what encloses a hunk, count only if no other place resembles what it
expects or leaves: where upstream changed what the patch was written for, its twin is the only match. Only the syntax
tree tells what is a definition: text in a string is none, and one whose name a later statement of the same scope binds
again proves nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.placing import candidates, doubts, enclosure
from vllm_mods.placing.answers import BaseKnown, Located, Lost
from vllm_mods.placing.enclosure import Identity
from vllm_mods.placing.headers import defines, definition_in, header_holds, written_in
from vllm_mods.placing.resemblance import LookAlike, look_alikes
from vllm_mods.placing.target import Target

_NEAR = 40
"""How many lines an upstream change may well have put in above; what stands further away was not there for that."""
_NEAR_ALIKE = 12
"""The same of what only resembles it: the patched text itself must then have come to stand at the very line, too."""
_BOTH = "the file has both the old and the new text of the hunk, so it is unknown whether the hunk is applied"


Written = Mapping[int, tuple[str, ...]]
"""What encloses the changes of each hunk, by its number, in the file that it was written for."""


def place(
    file: FileDiff,
    target: Target,
    *,
    back: bool = False,
    written: Written | None = None,
    base: BaseKnown = BaseKnown.NONE,
) -> tuple[Located | Lost, ...]:
    """Place all hunks of a file, in their order: one answer for each.

    Only where every answer is ``Located`` does the file have a proven placement. ``back`` says that ``file``
    is reversed, and the question whether it is in; ``written`` is where the hunks were written, by number. Knowing
    that never moves a hunk: it takes a place away, or gives one to a hunk that has none without it. ``base`` says how
    near the file is to the one that the patch was written for. Raises ``UnparsableError`` if the proof needs scopes that cannot be read.
    """
    placing = _Placing(file, target, back=back, base=base)
    answers = placing.answers({})
    if not written:
        return answers
    if any(isinstance(answer, Lost) for answer in answers):
        answers = placing.answers(written)
    pairs = zip(file.hunks, answers, strict=True)
    return tuple(_hold(hunk, answer, target, written.get(hunk.number)) for hunk, answer in pairs)


def _hold(
    hunk: Hunk, answer: Located | Lost, target: Target, chains: tuple[str, ...] | None
) -> Located | Lost:
    """Take a place away from a hunk that was written inside of something else."""
    if isinstance(answer, Lost) or answer.proof == "file" or chains is None:
        return answer
    around = enclosure.texts_at(hunk, target, answer.line)
    if around == chains:
        return answer
    message = f"its text is at line {answer.line}, in {_quote(around)}, but the hunk was written in {_quote(chains)}"
    return Lost(FindingCode.ELSEWHERE, message, " | ".join(chains) or None, (answer.line,))


def _quote(chains: tuple[str, ...]) -> str:
    return " and ".join(f"`{chain}`" if chain else "module level" for chain in chains)


class _Rival(NamedTuple):
    """A place at ``line`` that has ``score`` of one ``side`` of a hunk, beside its ``own``; ``chains`` is what encloses it.

    ``agrees`` says that all that the patch names is named so there, too.
    """

    own: int
    line: int
    score: float
    side: str
    chains: tuple[str, ...]
    agrees: bool


def _has_removed_heads(side: Hunk, match: LookAlike, target: Target) -> bool:
    """Tell whether each ``class`` or ``def`` that a hunk removes stands in a place that resembles it, too."""
    old = [(kind, text) for kind, text in side.lines if kind != "+"]
    gone = ((text, at) for (kind, text), at in zip(old, match.above, strict=True) if kind == "-")
    heads = ((name, at) for text, at in gone if (name := definition_in(text)))
    return all(at and definition_in(target.lines[at - 1]) == name for name, at in heads)


class _Placing:
    def __init__(self, file: FileDiff, target: Target, *, back: bool, base: BaseKnown) -> None:
        self.file = file
        self.hunks = file.hunks
        self.target = target
        self.back = back
        self.base = base

    def answers(self, written: Written) -> tuple[Located | Lost, ...]:
        self.written = written
        self.lost: dict[int, Lost] = {}
        self.rivals: dict[int, list[_Rival]] = {}
        self.alone: set[int] = set()  # hunks with one place that nothing resembles
        target = self.target
        if self.back and target.is_blob(self.file.new_blob):
            message = "the patch is not applied: the file is identical to the file that the patch was made on"
            return tuple(Lost(FindingCode.ABSENT, message, None) for _ in self.hunks)
        if target.is_blob(self.file.old_blob):
            known = stated_lines(self.hunks, target)
            if known is not None:
                return tuple(
                    Located(line, scope_of(hunk, target, line), "file")
                    for hunk, line in zip(self.hunks, known, strict=True)
                )
        self.places = [self.fitting_lines(i, hunk) for i, hunk in enumerate(self.hunks)]
        left = candidates.in_order(self.places, self.hunks, self.lost)
        proven = self.prove_hunks(left)
        stated = not self.lost and self.hold_stated(proven)
        return tuple(
            self.lost.get(i) or self.answer(i, proven.get(i), left[i], stated=stated)
            for i in range(len(self.hunks))
        )

    def fitting_lines(self, i: int, hunk: Hunk) -> tuple[int, ...]:
        """Return the lines at which a hunk's text stands where it may have been written; else say why not."""
        lines = candidates.candidates(hunk, self.target)
        if isinstance(lines, Lost):
            self.lost[i] = lines
            return ()
        fits = tuple(line for line in lines if header_holds(hunk, self.target, line))
        # The header tells what was above the hunk; upstream may have put something else in between.
        fits = fits or tuple(line for line in lines if defines(hunk, self.target, line))
        known = self.written.get(hunk.number)
        wanted = fits and tuple(
            line for line in fits if known in {None, enclosure.texts_at(hunk, self.target, line)}
        )
        if not wanted:
            places = _list(self.target, hunk, fits or lines)
            where = f"in {_quote(known or ())}" if fits else f"for the part below `{hunk.section}`"
            message = f"its text is at {places}, but the hunk was written {where}"
            scope = " | ".join(known) if known else written_in(hunk)
            self.lost[i] = Lost(FindingCode.ELSEWHERE, message, scope, fits or lines)
        return wanted

    def prove_hunks(self, left: Sequence[tuple[int, ...]]) -> dict[int, Located]:
        """Prove hunks one by one; each that has its place leaves the others less room."""
        proven: dict[int, Located] = {}
        before = -1
        while before < len(proven):
            before = len(proven)
            for i, hunk in enumerate(self.hunks):
                if i in proven or i in self.lost:
                    continue
                above = max((j for j in proven if j < i), default=None)
                below = min((j for j in proven if j > i), default=None)
                first = 1 if above is None else proven[above].line + len(self.hunks[above].old)
                end = len(self.target.lines) + 1 if below is None else proven[below].line
                lines = [line for line in left[i] if first <= line and line + len(hunk.old) <= end]
                if len(lines) == 1:
                    # what is between two hunks that moved as far as this one is as long as it was
                    offsets = {
                        None if j is None else proven[j].line - self.hunks[j].stated
                        for j in (above, below)
                    }
                    held = offsets == {lines[0] - hunk.stated}
                    place = self.prove_one(i, hunk, lines[0], range(first, end), held=held)
                    if place is not None:
                        proven[i] = place
        return proven

    def prove_one(
        self, i: int, hunk: Hunk, line: int, room: range, *, held: bool
    ) -> Located | None:
        """Prove the only place that a hunk has left, unless another one resembles what it expects.

        ``held`` says that proven hunks before and behind moved as far as it would.
        """
        identity = Identity.read(hunk, self.target, line)
        known = self.written.get(hunk.number)
        rivals = list(self.find_rivals(hunk, line, identity, known))
        self.rivals[i] = [rival for rival in rivals if rival.line in room]
        if self.rivals[i]:
            return None
        by_scope = known is not None or identity.whole
        self.alone.add(i)
        if not (held or self.is_telling(hunk, identity, known)):
            return None
        proof = "order" if rivals or len(self.places[i]) > 1 else "unique"
        return Located(line, scope_of(hunk, self.target, line), "scope" if by_scope else proof)

    def is_telling(self, hunk: Hunk, identity: Identity, known: tuple[str, ...] | None) -> bool:
        """Tell whether the only place of a hunk can be the one it was written for; ``known`` is what mod.lock says encloses it."""
        # that a removal is in shows only by what was around it
        shows = not self.back or any(kind == "-" for kind, _ in hunk.lines)
        scant = candidates.is_scant(hunk)
        # mod.lock says which statement it was, and of few lines not in which of its arguments
        placed = known is not None and not (scant and identity.inside_statement)
        if shows and (placed or identity.exact):
            return True
        if scant:  # another branch of the function may well have so few lines
            return False
        named = known is not None or identity.whole or (identity.named and shows)
        return named or self.target.scopes is None

    def find_rivals(
        self, hunk: Hunk, line: int, identity: Identity, known: tuple[str, ...] | None
    ) -> Iterator[_Rival]:
        """Yield the other places that resemble what the hunk expects, or leaves, and could be the one it was written for."""
        own = range(line, line + len(hunk.old))
        if candidates.belongs_at_edge(hunk) and identity.homes == ((),):
            return  # the end of the file is a place of its own
        for side, expected in ((hunk, "old text"), (hunk.reversed(), "new text")):
            for match in look_alikes(side.old, self.target, own):
                chains = enclosure.chains_like(side, self.target, match)
                texts, homes = enclosure.texts(chains), tuple(map(enclosure.home_of, chains))
                if not _has_removed_heads(side, match, self.target):
                    possible = False  # what the hunk removes or renames has a name
                elif known is not None:
                    possible = texts == known
                else:  # only text in a string has no blocks that could tell it apart
                    possible = identity.admits(homes) or self.target.in_string(
                        match.line, match.line
                    )
                if possible:
                    yield _Rival(
                        line, match.line, match.score, expected, texts, identity.agrees(homes)
                    )

    def look_alike(self, hunk: Hunk, rival: _Rival) -> Lost:
        scope = scope_of(hunk, self.target, rival.own)
        here = _quote(enclosure.texts_at(hunk, self.target, rival.own))
        message = f"its text is at line {rival.own}, in {here}, but the hunk could also belong to line {rival.line}, in {_quote(rival.chains)}, where {rival.score:.0%} of the hunk's {rival.side} matches"
        return Lost(FindingCode.LOOK_ALIKE, message, scope or None, (rival.own, rival.line))

    def hold_stated(self, proven: Mapping[int, Located]) -> bool:
        """Tell whether all hunks stand at their stated lines, and none of them could be there because something above changed.

        That shifts a twin to where the text stood. It is ruled out in the file as the version was shipped that the patch was
        written for, by hunks before and behind that nothing resembles and that
        have not moved; in a tree of the version that the patch was written for, by all other places being far away. What
        undoes the patch must not stand at its stated lines as well.
        """
        places = zip(self.hunks, self.places, strict=True)
        if any(hunk.stated not in lines for hunk, lines in places):
            return False
        if self.back and any(map(doubts.leaves_blanks, self.hunks)):
            return False
        if self.base is BaseKnown.NONE and not proven and all(map(candidates.is_scant, self.hunks)):
            return False  # a twin of so few lines may well have come to stand there
        is_away = any(place.line != self.hunks[i].stated for i, place in proven.items())
        if is_away or stated_lines(self.file.reversed().hunks, self.target) is not None:
            return False
        if self.base is BaseKnown.RELEASED:
            return True
        first, last = min(self.alone, default=len(self.hunks)), max(self.alone, default=-1)
        return all(
            i in self.alone or first < i < last or self.is_apart(i) for i in range(len(self.hunks))
        )

    def is_apart(self, i: int) -> bool:
        """Tell whether all other places of a hunk, and what resembles it, are too far from its stated line to have come there."""
        stated = self.hunks[i].stated
        alike = [rival.line for rival in self.rivals.get(i, ()) if rival.agrees]
        limits = ((self.places[i], _NEAR), (alike, _NEAR_ALIKE))
        others = [(line, near) for lines, near in limits for line in lines if line != stated]
        far = all(abs(line - stated) > near for line, near in others)
        return not others or (self.base is BaseKnown.VERSION and far)

    def answer(
        self, i: int, proven: Located | None, left: tuple[int, ...], *, stated: bool
    ) -> Located | Lost:
        hunk = self.hunks[i]
        if stated and (proven is None or proven.proof == "unique"):
            proven = Located(hunk.stated, scope_of(hunk, self.target, hunk.stated), "stated")
        if proven is None and self.rivals.get(i):
            return self.look_alike(hunk, max(self.rivals[i], key=lambda rival: rival.score))
        if proven is None and len(left) == 1:
            where = "is only" if len(self.places[i]) == 1 else "could belong"
            message = f"its text {where} at line {left[0]}, not at its stated line, and the `@@` line names no function or class around it"
            known = self.written.get(hunk.number)
            if known is not None and where == "is only" and candidates.is_scant(hunk):
                message = f"its text is at line {left[0]}, the only match in {_quote(known)}, for which the hunk was written; but so few lines do not prove the place"
            only = Located(left[0], scope_of(hunk, self.target, left[0]), "unique")
            against = self.doubt(hunk, only, stated=False) or (FindingCode.UNPROVABLE, message)
            return Lost(*against, written_in(hunk), left)
        if proven is None:
            places = _list(self.target, hunk, left)
            message = (
                f"its text matches in {len(left)} places, and nothing tells them apart: {places}"
            )
            return Lost(FindingCode.AMBIGUOUS, message, written_in(hunk), left)
        why = self.doubt(hunk, proven, stated=stated)
        return Lost(*why, proven.scope or None, (proven.line,)) if why else proven

    def doubt(self, hunk: Hunk, place: Located, *, stated: bool) -> tuple[FindingCode, str] | None:
        """Return the code and the words for what is against a place that is the only one left, if anything."""
        line = place.line
        if fault := doubts.fault(hunk, self.target, line):
            return FindingCode.ELSEWHERE, fault
        if not (stated or hunk.section) and self.target.in_string(line, line + len(hunk.old) - 1):
            message = f"its text is in a string at line {line}, and nothing shows that the hunk was written for a string"
            return FindingCode.ELSEWHERE, message
        if self.back:
            either = doubts.is_left(hunk, self.file, self.target, line)
            either = either or (not stated and doubts.slides(hunk))
        else:
            either = doubts.repeats(hunk, self.target, line)
            either = either or (not stated and doubts.has_added(hunk, self.target, line))
        if either or (not stated and doubts.overlaps(hunk, self.target, line)):
            return FindingCode.BOTH_WAYS, _BOTH
        return None


def stated_lines(hunks: Sequence[Hunk], target: Target) -> tuple[int, ...] | None:
    """Return the stated lines of all hunks if each can stand there; None otherwise."""
    lines, stated = target.lines, tuple(hunk.stated for hunk in hunks)
    fit = all(
        lines[line - 1 : line - 1 + len(hunk.old)] == hunk.old
        and line - 1 <= len(lines)
        and candidates.at_edges(hunk, target, line)
        for hunk, line in zip(hunks, stated, strict=True)
    )
    return stated if fit else None


def scope_of(hunk: Hunk, target: Target, line: int) -> str:
    """Return the chain of scopes that a hunk's context passes through at a line.

    Only lines that the hunk keeps count, so that the chain is the same before and
    after; a hunk without any counts by the lines that it removes.
    """
    if target.scopes is None:
        return ""
    numbered = [(kind, text) for kind, text in hunk.lines if kind != "+"]
    numbers = [line + i for i, (kind, text) in enumerate(numbered) if kind == " " and text.strip()]
    if not numbers:
        numbers = [line + i for i, (_, text) in enumerate(numbered) if text.strip()]
    return target.scopes.chain(numbers)


def _list(target: Target, hunk: Hunk, lines: Sequence[int]) -> str:
    shown = []
    for line in lines[:5]:
        scope = scope_of(hunk, target, line)
        at = f"line {line}, the stated one" if line == hunk.stated else f"line {line}"
        shown.append(f"{at} (`{scope}`)" if scope else at)
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return ", ".join(shown) + more
