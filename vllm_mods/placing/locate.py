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

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.formats.diff import FileDiff, Hunk
from vllm_mods.placing.headers import (
    defines,
    definition_in,
    header_holds,
    is_below,
    names_top,
    written_in,
)
from vllm_mods.placing.scopes import ANCHORS
from vllm_mods.placing.target import Target, matches

_BOTH = "both what it looks for and what it leaves are there, and nothing tells whether it is in"


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


def place(file: FileDiff, target: Target, *, back: bool = False) -> tuple[Located | Lost, ...]:
    """Place all hunks of a file, in their order: one answer for each.

    Only where every answer is ``Located`` does the file have a proven placement. ``back`` says that ``file``
    is reversed, and the question whether it is in. Raises ``UnparsableError`` if the proof needs scopes that
    cannot be read.
    """
    if target.is_blob(file.old_blob) and (known := _stated(file.hunks, target)) is not None:
        return tuple(
            Located(line, scope_of(hunk, target, line), "file")
            for hunk, line in zip(file.hunks, known, strict=True)
        )
    options = [_Options.of(hunk, target) for hunk in file.hunks]
    lost = {i: one.lost for i, one in enumerate(options) if one.lost is not None}
    left = _in_order([one.fits for one in options if one.lost is None], file.hunks, lost)
    rest = iter(left)
    places = [() if i in lost else next(rest) for i in range(len(file.hunks))]
    # A repeated text that moved by its own length stands at the stated line too: between two proven
    # hunks that did not move it has not.
    stated = all(hunk.stated in lines for hunk, lines in zip(file.hunks, places, strict=True))
    proven = [i for i, lines in enumerate(places) if len(lines) == 1]
    answers: list[Located | Lost] = []
    for i, (hunk, one) in enumerate(zip(file.hunks, options, strict=True)):
        held = stated and bool(proven) and proven[0] < i < proven[-1]
        found = lost[i] if i in lost else _answer(hunk, one, places[i], target, held=held)
        if isinstance(found, Located) and (
            why := _doubt(i, file, one, target, found.line, back=back)
        ):
            found = Lost(*why, found.scope or None, (found.line,))
        answers.append(found)
    return tuple(answers)


def _doubt(
    i: int, file: FileDiff, options: _Options, target: Target, line: int, *, back: bool
) -> tuple[str, str] | None:
    """Return the code and the words for what is against a place that is the only one left, if anything."""
    hunk = file.hunks[i]
    if fault := _fault(hunk, target, line):
        return "elsewhere", fault
    if not options.told and target.in_string(line, line + len(hunk.old) - 1):
        message = f"its text stands in a string at line {line}, and nothing says that it was written for one"
        return "elsewhere", message
    if _is_in(hunk, target):
        return "both-ways", _BOTH
    if back and (
        _slides(hunk) or _still_there(hunk, target, line) or _moved(hunk, file, target, line)
    ):
        return "both-ways", _BOTH
    return None


def _is_in(hunk: Hunk, target: Target) -> bool:
    """Tell whether what a hunk would leave stands in the file too, where it may have been written for."""
    other = hunk.reversed()
    return bool(other.old) and any(
        _at_edges(other, target, there) and header_holds(hunk, target, there)
        for there in matches(target.data, other.old)
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


class _Options(NamedTuple):
    """Where one hunk could go by itself: its text ``fits`` there, and so does its header.

    ``told`` says that the hunk tells what it was written in.
    """

    fits: tuple[int, ...]
    told: bool
    lost: Lost | None

    @classmethod
    def of(cls, hunk: Hunk, target: Target) -> _Options:
        """Look a hunk up. Raises ``UnparsableError``."""
        text = _matches(hunk, target)
        written = written_in(hunk)
        if isinstance(text, Lost):
            return cls((), told=False, lost=text)
        fits = tuple(line for line in text if header_holds(hunk, target, line))
        # The header tells what was above the hunk; upstream may have put something else in between.
        below = tuple(line for line in text if defines(hunk, target, line))
        if fits or below:
            told = not fits or bool(below) or names_top(hunk, target)
            return cls(fits or below, told=told, lost=None)
        places = _listed(target, hunk, text)
        message = (
            f"its text stands at {places}, but it was written for the part below `{hunk.section}`"
        )
        return cls((), told=False, lost=Lost("elsewhere", message, written, text))


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
    kept = [i for i in range(len(hunks)) if i not in lost]
    left = list(options)
    first = 0
    for n, i in enumerate(kept):
        left[n] = tuple(line for line in left[n] if line >= first)
        if left[n]:
            first = left[n][0] + len(hunks[i].old)
    last: int | None = None
    for n, i in reversed(tuple(enumerate(kept))):
        size = len(hunks[i].old)
        left[n] = tuple(line for line in left[n] if last is None or line + size <= last)
        if left[n]:
            last = left[n][-1]
    for n, i in enumerate(kept):
        if not left[n]:
            at = ", ".join(f"line {line}" for line in options[n][:5])
            message = f"its text stands at {at}, and the hunks before and behind it in the patch do not leave it that place"
            lost[i] = Lost("order", message, written_in(hunks[i]), options[n])
    return [one for one in left if one]


def _answer(
    hunk: Hunk, options: _Options, left: tuple[int, ...], target: Target, *, held: bool
) -> Located | Lost:
    line = left[0]
    if len(left) > 1:
        if not held:
            places = _listed(target, hunk, left)
            message = f"its text stands in {len(left)} places that nothing tells apart: {places}"
            return Lost("ambiguous", message, written_in(hunk), left)
        return Located(hunk.stated, scope_of(hunk, target, hunk.stated), "stated")
    scope = scope_of(hunk, target, line)
    if len(options.fits) > 1:
        return Located(line, scope, "order")
    anchored = scope.endswith(ANCHORS)
    return Located(line, scope, "scope" if options.told or anchored else "unique")


def _stated(hunks: Sequence[Hunk], target: Target) -> tuple[int, ...] | None:
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
