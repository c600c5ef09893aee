"""Where the hunks of one file belong: all of them together, or why not. Pure.

A hunk matches byte for byte or not at all. All hunks of a file are placed together: in their order, not
overlapping, a hunk without trailing context only at the end of the file, one for line 1 without leading
context only at its start (as in git's apply.c and GNU patch without fuzz). Of what is left exactly one
placement has to be proven, by the strongest evidence there is:

``file``    the file is byte for byte the one that the patch was written for (git's ``index`` line),
``scope``   what encloses the hunk is what it was written in: by the section header behind ``@@`` (git
            writes the nearest line above that starts in column 0, or the nearest definition), by
            definitions in the hunk, or by the import or assignment of the module that it is part of,
``order``   the hunks before and behind it leave it one place,
``stated``  all hunks of the file stand at their stated lines, and proven ones before and behind it,
``unique``  nothing but its being the only match in the file.

Only the syntax tree tells what is a definition: text in a string is none, and one whose name a later
statement of the same scope binds again proves nothing. Inside a string a hunk has a place only by its header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from vllm_mods.base import limits, line_diff
from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.placing import enclosure
from vllm_mods.placing.enclosure import Identity
from vllm_mods.placing.headers import defines, definition_in, header_holds, is_below, written_in
from vllm_mods.placing.resemblance import look_alikes, telling
from vllm_mods.placing.target import Target, matches

_FEW = 3
"""Lines of code that a hunk needs for a place that nothing but its text proves."""
_NEAR = 40
"""How many lines an upstream change may well have put in above; what stands further away was not there for that."""
_BOTH = "both what it looks for and what it leaves are there, and nothing tells whether it is in"


Written = Mapping[int, tuple[str, ...]]
"""What encloses the changes of each hunk, by its number, in the file that it was written for."""


class Located(NamedTuple):
    """A proven place: 1-based ``line`` of the hunk's first old line, and what proves it."""

    line: int
    scope: str
    proof: str


class Lost(NamedTuple):
    """No proven place. ``code`` is one of these.

    ``absent``      its text is not there,
    ``edge``        its text is there, but not at the edge of the file that it belongs to,
    ``elsewhere``   its text is there, but not in what it was written for,
    ``ambiguous``   nothing tells several places apart,
    ``order``       its places contradict the order of the hunks,
    ``both-ways``   what it looks for is there, and what it leaves too,
    ``unprovable``  it has no context, so that nothing could prove a place.

    ``scope`` is where the hunk was written, as far as that is known, ``lines`` the
    places where its text stands.
    """

    code: str
    message: str
    scope: str | None
    lines: tuple[int, ...] = ()


def place(
    file: FileDiff, target: Target, *, back: bool = False, written: Written | None = None
) -> tuple[Located | Lost, ...]:
    """Place all hunks of a file, in their order: one answer for each.

    Only where every answer is ``Located`` does the file have a proven placement. ``back`` says that ``file``
    is reversed, and the question whether it is in; ``written`` is where the hunks were written, by number. Knowing
    that never moves a hunk: it takes a place away, or gives one to a hunk that has none without it. Raises
    ``UnparsableError`` if the proof needs scopes that cannot be read.
    """
    answers = _Placing(file, target, back, {}).answers()
    if not written:
        return answers
    if any(isinstance(answer, Lost) for answer in answers):
        answers = _Placing(file, target, back, written).answers()
    return tuple(
        _held_to(hunk, answer, target, written.get(hunk.number))
        for hunk, answer in zip(file.hunks, answers, strict=True)
    )


def place_through(
    file: FileDiff,
    answers: tuple[Located | Lost, ...],
    below: tuple[Located | Lost, ...],
    beneath: bytes,
    target: Target,
) -> tuple[Located | Lost, ...]:
    """Place hunks in a file that other mods have changed by where they go in the file ``beneath``: ``below``, carried along.

    Where they have places both ways, these have to be the same.
    """
    carried = _carry(file.hunks, below, beneath, target)
    if carried is None:
        return answers
    here = [answer.line if isinstance(answer, Located) else None for answer in answers]
    if None not in here:
        differ = (i for i, line in enumerate(here) if line != carried[i].line)
        wrong = next(differ, None)
        if wrong is None:
            return carried
        message = f"its text stands at line {here[wrong]}, and what other mods of the plan have changed leads to line {carried[wrong].line}"
        return _replaced(answers, wrong, Lost("elsewhere", message, carried[wrong].scope or None))
    strong = all(place.proof in {"file", "scope", "stated"} for place in carried)
    return carried if strong else answers


def _replaced(
    answers: tuple[Located | Lost, ...], i: int, lost: Lost
) -> tuple[Located | Lost, ...]:
    return (*answers[:i], lost, *answers[i + 1 :])


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


def _held_to(
    hunk: Hunk, answer: Located | Lost, target: Target, chains: tuple[str, ...] | None
) -> Located | Lost:
    """Take a place away from a hunk that was written inside of something else."""
    if isinstance(answer, Lost) or answer.proof == "file" or chains is None:
        return answer
    there = enclosure.texts(enclosure.chains_at(hunk, target, answer.line))
    if there == chains:
        return answer
    message = f"its text stands at line {answer.line}, in {_quoted(there)}, and it was written in {_quoted(chains)}"
    return Lost("elsewhere", message, " | ".join(chains) or None, (answer.line,))


def _quoted(chains: tuple[str, ...]) -> str:
    return " and ".join(f"`{chain}`" if chain else "the module itself" for chain in chains)


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


class _Placing:
    """One file's hunks on one target."""

    def __init__(self, file: FileDiff, target: Target, back: bool, written: Written) -> None:  # noqa: FBT001
        self.file = file
        self.hunks = file.hunks
        self.target = target
        self.back = back
        self.written = written
        self.lost: dict[int, Lost] = {}
        self.places: list[tuple[int, ...]] = []
        self.rivals: dict[int, list[_Rival]] = {}
        self.alone: set[int] = set()  # hunks with one place that nothing resembles

    def answers(self) -> tuple[Located | Lost, ...]:
        target = self.target
        if target.is_blob(self.file.old_blob):
            known = stated_lines(self.hunks, target)
            if known is not None:
                return tuple(
                    Located(line, scope_of(hunk, target, line), "file")
                    for hunk, line in zip(self.hunks, known, strict=True)
                )
        self.places = [self.fits(i, hunk) for i, hunk in enumerate(self.hunks)]
        left = _in_order(self.places, self.hunks, self.lost)
        proven = self.prove(left)
        stated = not self.lost and self.hold_stated(proven)
        return tuple(
            self.lost.get(i) or self.answer(i, proven.get(i), left[i], stated=stated)
            for i in range(len(self.hunks))
        )

    def fits(self, i: int, hunk: Hunk) -> tuple[int, ...]:
        """Return the lines at which a hunk's text stands where it may have been written; else say why not."""
        lines = _matches(hunk, self.target)
        if isinstance(lines, Lost):
            self.lost[i] = lines
            return ()
        fits = tuple(line for line in lines if header_holds(hunk, self.target, line))
        # The header tells what was above the hunk; upstream may have put something else in between.
        fits = fits or tuple(line for line in lines if defines(hunk, self.target, line))
        known = self.written.get(hunk.number)
        wanted = fits and tuple(line for line in fits if known in {None, self.chains(hunk, line)})
        if not wanted:
            places = _listed(self.target, hunk, fits or lines)
            where = (
                f"for the part below `{hunk.section}`" if not fits else f"in {_quoted(known or ())}"
            )
            message = f"its text stands at {places}, but it was written {where}"
            scope = " | ".join(known) if known else written_in(hunk)
            self.lost[i] = Lost("elsewhere", message, scope, fits or lines)
        return wanted

    def chains(self, hunk: Hunk, line: int) -> tuple[str, ...]:
        return enclosure.texts(enclosure.chains_at(hunk, self.target, line))

    def prove(self, left: Sequence[tuple[int, ...]]) -> dict[int, Located]:
        """Prove hunks one by one; each that has its place leaves the others less room."""
        proven: dict[int, Located] = {}
        before = -1
        while before < len(proven):
            before = len(proven)
            for i, hunk in enumerate(self.hunks):
                if i in proven or i in self.lost:
                    continue
                first = max(
                    (at.line + len(self.hunks[j].old) for j, at in proven.items() if j < i),
                    default=1,
                )
                end = min(
                    (at.line for j, at in proven.items() if j > i),
                    default=len(self.target.lines) + 1,
                )
                room = range(first, end)
                lines = [line for line in left[i] if first <= line and line + len(hunk.old) <= end]
                if len(lines) == 1:
                    found = self.prove_one(i, hunk, lines[0], room)
                    if found is not None:
                        proven[i] = found
        return proven

    def prove_one(self, i: int, hunk: Hunk, line: int, room: range) -> Located | None:
        """Prove the only place that a hunk has left, unless another one resembles what it expects."""
        identity = Identity.read(hunk, self.target, line)
        known = self.written.get(hunk.number)
        rivals = list(self.find_rivals(hunk, line, identity, known))
        self.rivals[i] = [rival for rival in rivals if rival.line in room]
        if self.rivals[i]:
            return None
        told = known is not None or identity.whole
        bounded = room.start > 1 and room.stop <= len(self.target.lines)
        self.alone.add(i)
        if not (told or bounded) and _is_scant(hunk):
            return None
        proof = "order" if rivals or len(self.places[i]) > 1 else "unique"
        return Located(line, scope_of(hunk, self.target, line), "scope" if told else proof)

    def find_rivals(
        self, hunk: Hunk, line: int, identity: Identity, known: tuple[str, ...] | None
    ) -> Iterator[_Rival]:
        """Yield the other places that resemble what the hunk expects, or leaves, and could be the one it was written for."""
        own = range(line, line + len(hunk.old))
        if (_belongs_at_end(hunk) or _belongs_at_start(hunk)) and identity.homes == ((),):
            return  # the end of the file is a place of its own
        for side, expected in ((hunk, "it"), (hunk.reversed(), "what it leaves")):
            for match in look_alikes(side.old, self.target, own):
                chains = enclosure.chains_like(side, self.target, match)
                texts, homes = enclosure.texts(chains), tuple(map(enclosure.home_of, chains))
                if known is not None:
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
        here = _quoted(self.chains(hunk, rival.own))
        message = (
            f"its text stands at line {rival.own}, in {here}, and line {rival.line}, in {_quoted(rival.chains)}, "
            f"has {rival.score:.0%} of {rival.side}: nothing tells which of the two it was written for"
        )
        return Lost("look-alike", message, scope or None, (rival.own, rival.line))

    def hold_stated(self, proven: Mapping[int, Located]) -> bool:
        """Tell whether all hunks stand at their stated lines, and none of them could be there because something above grew.

        Lines put in above shift a repeated text by its own length to where its neighbour stood. That is ruled out by proven
        hunks before and behind that have not moved, or by all other places being far away. What undoes the patch must not
        stand at its stated lines as well.
        """
        if any(
            hunk.stated not in lines for hunk, lines in zip(self.hunks, self.places, strict=True)
        ):
            return False
        if any(place.line != self.hunks[i].stated for i, place in proven.items()):
            return False
        first, last = min(self.alone, default=len(self.hunks)), max(self.alone, default=-1)
        return stated_lines(self.file.reversed().hunks, self.target) is None and all(
            i in self.alone or first < i < last or self.is_apart(i) for i in range(len(self.hunks))
        )

    def is_apart(self, i: int) -> bool:
        """Tell whether all other places of a hunk, and what resembles it, are far from its stated line."""
        stated = self.hunks[i].stated
        alike = (rival.line for rival in self.rivals.get(i, ()) if rival.agrees)
        others = [*self.places[i], *alike]
        return all(line == stated or abs(line - stated) > _NEAR for line in others)

    def answer(
        self, i: int, proven: Located | None, left: tuple[int, ...], *, stated: bool
    ) -> Located | Lost:
        hunk = self.hunks[i]
        if stated and (proven is None or proven.proof == "unique"):
            scope = scope_of(hunk, self.target, hunk.stated)
            proven = Located(hunk.stated, scope, "stated")
        if proven is None and self.rivals.get(i):
            return self.look_alike(hunk, max(self.rivals[i], key=lambda rival: rival.score))
        if proven is None and len(left) == 1:
            message = f"its text stands at line {left[0]} only, and with so little context that proves nothing"
            return Lost("unprovable", message, written_in(hunk), left)
        if proven is None:
            places = _listed(self.target, hunk, left)
            message = f"its text stands in {len(left)} places that nothing tells apart: {places}"
            return Lost("ambiguous", message, written_in(hunk), left)
        why = self.doubt(hunk, proven, stated=stated)
        return Lost(*why, proven.scope or None, (proven.line,)) if why else proven

    def doubt(self, hunk: Hunk, place: Located, *, stated: bool) -> tuple[str, str] | None:
        """Return the code and the words for what is against a place that is the only one left, if anything."""
        line = place.line
        if fault := _fault(hunk, self.target, line):
            return "elsewhere", fault
        if not (stated or hunk.section) and self.target.in_string(line, line + len(hunk.old) - 1):
            message = f"its text stands in a string at line {line}, and nothing says that it was written for one"
            return "elsewhere", message
        slides = not stated and (
            _overlaps(hunk, self.target, line) or (self.back and _slides(hunk))
        )
        if slides or (
            self.back
            and (
                _still_there(hunk, self.target, line) or _moved(hunk, self.file, self.target, line)
            )
        ):
            return "both-ways", _BOTH
        return None


def _is_scant(hunk: Hunk) -> bool:
    """Tell whether a hunk has so few lines of code that the twin of what it was written for may well have the same.

    The end of the file is a place of its own.
    """
    few = min(len(telling(side)) for side in (hunk.old, hunk.new)) < _FEW
    return few and not _belongs_at_end(hunk) and not _belongs_at_start(hunk)


def _overlaps(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether what a hunk would leave stands where its text does, too."""
    other = hunk.reversed()
    return bool(other.old) and any(
        there < line + len(hunk.old) and line < there + len(other.old)
        for there in matches(target.data, other.old)
        if _at_edges(other, target, there)
    )


def _slides(back: Hunk) -> bool:
    """Tell whether what a hunk removed begins or ends as what is around it.

    What it kept then stands beside a removed text that became another one, too.
    """
    kinds = [kind for kind, _ in back.lines]
    if "-" in kinds or "+" not in kinds:
        return False
    first, last = kinds.index("+"), len(kinds) - 1 - kinds[::-1].index("+")
    texts = [text for _, text in back.lines]
    before, removed, after = texts[:first], texts[first : last + 1], texts[last + 1 :]
    ends = bool(before) and removed[-len(before) :] == before
    return ends or (bool(after) and removed[: len(after)] == after)


def _still_there(back: Hunk, target: Target, line: int) -> bool:
    """Tell whether a class or function that a hunk removed, and did not put back, is in its place."""
    if target.scopes is None:
        return False
    kept = {definition_in(text) for kind, text in back.lines if kind == "-"}
    around = target.scopes.at(line).split(".")
    homes = {".".join(around[:n]) for n in range(len(around) + 1)}
    for kind, text in back.lines:
        shown = definition_in(text)
        if kind != "+" or shown is None or shown in kept:
            continue
        name = shown.split()[-1]
        inner = text[:1].isspace()
        for one in target.scopes.definitions():
            home, _, last = one.name.rpartition(".")
            if last == name and (home in homes if inner else not home):
                return True
    return False


def _moved(back: Hunk, file: FileDiff, target: Target, line: int) -> bool:
    """Tell whether lines that a hunk removed, and no hunk put back, stand elsewhere in the same scope.

    What was around them stands together in a file that only moved them, too.
    """
    put = b"".join(_ended(text) for hunk in file.hunks for kind, text in hunk.lines if kind == "-")
    own = range(line, line + len(back.old))
    for at, removed in _removed(back, line):
        if b"".join(removed) in put:
            continue
        around = {target.home(max(at - 1, 1)), target.home(at)}
        others = (one for one in matches(_ended(target.data), removed) if one not in own)
        if any(not removed[0][:1].isspace() or target.home(one) in around for one in others):
            return True
    return False


def _removed(back: Hunk, line: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield what a hunk, now at ``line``, removed without putting anything in its place, and where that was."""
    for kept, group in groupby(back.lines, key=lambda one: one[0] == " "):
        run = list(group)
        if not kept and {kind for kind, _ in run} == {"+"}:
            told = [i for i, (_, text) in enumerate(run) if text.strip()]
            yield line, [_ended(text) for _, text in run[told[0] : told[-1] + 1]] if told else []
        line += sum(kind != "+" for kind, _ in run)


def _ended(text: bytes) -> bytes:
    return text if text.endswith(b"\n") else text + b"\n"


def _matches(hunk: Hunk, target: Target) -> tuple[int, ...] | Lost:
    """Return the lines at which a hunk's text stands, held to the edges that it belongs to."""
    written = written_in(hunk)
    if not hunk.old:
        if not target.data:
            return (1,)
        if hunk.old_start == 0:
            return Lost("edge", "it fills an empty file, and this one has lines", written)
        message = "the hunk has no context lines, so nothing proves where it belongs"
        return Lost("unprovable", message, written)
    lines = matches(target.data, hunk.old)
    if not lines or len(lines) > limits.PLACES:
        many = f"its text stands in more than {limits.PLACES}"
        code = "ambiguous" if lines else "absent"
        message = many if lines else "its text is not there"
        return Lost(code, message, written, lines)
    held = tuple(line for line in lines if _at_edges(hunk, target, line))
    if held:
        return held
    there = ", ".join(f"line {line}" for line in lines[:5])
    message = f"it was written for the first line of the file, and its text is at {there}"
    if _belongs_at_end(hunk):
        message = f"nothing follows its change, so it belongs at the end of the file: its text is at {there}, and more follows"
    return Lost("edge", message, written, lines)


def _belongs_at_start(hunk: Hunk) -> bool:
    return hunk.old_start <= 1 and hunk.lines[0][0] != " "


def _belongs_at_end(hunk: Hunk) -> bool:
    return hunk.lines[-1][0] != " " or not (hunk.new or hunk.old)[-1].endswith(b"\n")


def _at_edges(hunk: Hunk, target: Target, line: int) -> bool:
    ends = line - 1 + len(hunk.old) == len(target.lines)
    return (line == 1 or not _belongs_at_start(hunk)) and (ends or not _belongs_at_end(hunk))


def _fault(hunk: Hunk, target: Target, line: int) -> str | None:
    """Say what is wrong with the definitions around and inside a hunk at a line, if anything.

    Asked of the place that is left: one that is none by this leaves no other the only one.
    """
    if target.scopes is None:
        return None
    for number, text in enumerate(hunk.old, line):
        shown = definition_in(text)
        if shown and number not in target.heads:
            return f"`{shown}` is text in a string at line {number}, and no definition"
    for first, last in _changed(hunk, line):
        dead = next((one for one in target.dead if one.start <= first and last <= one.end), None)
        if dead is not None:
            return f"its text stands in the `{dead.name}` of line {dead.head}, whose name a later statement binds again"
    return None


def _changed(hunk: Hunk, line: int) -> Iterator[tuple[int, int]]:
    """Yield the lines that a hunk at ``line`` removes, and those around what it adds."""
    for kind, _ in hunk.lines:
        if kind == "+":
            yield line - 1, line
        elif kind == "-":
            yield line, line
        line += kind != "+"


def _in_order(
    options: list[tuple[int, ...]], hunks: Sequence[Hunk], lost: dict[int, Lost]
) -> list[tuple[int, ...]]:
    """Leave of each hunk's places those that go with places of the hunks before and behind it.

    A hunk that has none left is put into ``lost``.
    """
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
            message = f"its text stands at {at}, and the hunks before and behind it in the patch do not leave it that place"
            lost[i] = Lost("order", message, written_in(hunks[i]), options[i])
    return left


def stated_lines(hunks: Sequence[Hunk], target: Target) -> tuple[int, ...] | None:
    """Return the stated lines of all hunks if the text of each stands there; None otherwise."""
    lines = target.lines
    found = []
    for hunk in hunks:
        line = hunk.stated
        if lines[line - 1 : line - 1 + len(hunk.old)] != hunk.old or line - 1 > len(lines):
            return None
        found.append(line)
    return tuple(found)


def stands(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell by text alone whether a hunk can stand at this line and nowhere else, header included.

    What a lock says of a place is believed only where the patch itself does not contradict it.
    """
    at = (there for there in matches(target.data, hunk.old) if _at_edges(hunk, target, there))
    return [there for there in at if is_below(hunk.section, target, there)] == [line]


def scope_of(hunk: Hunk, target: Target, line: int) -> str:
    """Return the chain of scopes that a hunk's context passes through at a line.

    Only lines that the hunk keeps count, so that the chain is the same before and
    after; a hunk without any counts by the lines that it removes.
    """
    if target.scopes is None:
        return ""
    numbered = [(kind, text) for kind, text in hunk.lines if kind != "+"]
    told = [line + i for i, (kind, text) in enumerate(numbered) if kind == " " and text.strip()]
    if not told:
        told = [line + i for i, (_, text) in enumerate(numbered) if text.strip()]
    return target.scopes.chain(told)


def splice(lines: Sequence[bytes], placed: Sequence[tuple[int, Hunk]]) -> bytes | None:
    """Put hunks in at their 1-based lines; None if two of them want the same lines."""
    out: list[bytes] = []
    at = 0
    for line, hunk in sorted(placed, key=lambda pair: pair[0]):
        start = line - 1
        if start < at:
            return None
        out += lines[at:start]
        out += hunk.new
        at = start + len(hunk.old)
    out += lines[at:]
    return b"".join(out)


def _listed(target: Target, hunk: Hunk, lines: Sequence[int]) -> str:
    shown = []
    for line in lines[:5]:
        scope = scope_of(hunk, target, line)
        shown.append(f"line {line} (`{scope}`)" if scope else f"line {line}")
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return ", ".join(shown) + more
