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
statement of the same scope binds again proves nothing.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base import limits, line_diff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vllm_mods.formats.diff import FileDiff, Hunk
    from vllm_mods.placing.scopes import Scope, Scopes

_DEFINITION = r"\s*(?:async\s+)?(class|def)\s+(\w+)"
# Prose has the word too, and no bracket or colon behind a name.
_CODE = r"\s*((?:async\s+)?(?:def\s+\w+(?=\s*[(\[])|class\s+\w+(?=\s*[(:\[])))"
# An indented one tells no class: every other class may have a method of that name.
_TOP_LEVEL = rb"(?:async\s+)?(?:class|def)\s"
_COLUMN_0 = rb"[A-Za-z_$]"
_BOTH = "both what it looks for and what it leaves are there, and nothing tells whether it is in"
_SHORTEST_BLOB = 7
_WIDEST = 70
_MOST_COMPARED = 20_000
_BLOB_HASHES = {40: hashlib.sha1, 64: hashlib.sha256}


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


class Near(NamedTuple):
    """The place most like a hunk's: 1-based ``line`` of the first difference, what it is, ``start``."""

    line: int
    words: str
    start: int


class Target:
    """A file to look in. Its scopes are read at the first question that needs them.

    ``parse`` is None for a file that has no scopes (a template, JSON). It may raise
    ``UnparsableError``.
    """

    def __init__(self, data: bytes, parse: Callable[[bytes], Scopes] | None) -> None:
        self.data = data
        self.parse = parse
        self._scopes: Scopes | None = None
        self._lines: tuple[bytes, ...] | None = None
        self._heads: dict[int, Scope] | None = None
        self._tops: list[int] | None = None

    @property
    def scopes(self) -> Scopes | None:
        """The file's scopes; None where it has none."""
        if self._scopes is None and self.parse is not None:
            self._scopes = self.parse(self.data)
        return self._scopes

    @property
    def heads(self) -> dict[int, Scope]:
        """The classes and functions by the line of their ``class`` or ``def``."""
        if self._heads is None:
            known = self.scopes
            self._heads = {one.head: one for one in known.definitions()} if known else {}
        return self._heads

    @property
    def tops(self) -> list[int]:
        """The numbers of the lines that begin in column 0 as git's do, in order."""
        if self._tops is None:
            self._tops = [n for n, text in enumerate(self.lines, 1) if re.match(_COLUMN_0, text)]
        return self._tops

    @property
    def dead(self) -> tuple[Scope, ...]:
        """The definitions that are not what their name is bound to in the end."""
        known = self.scopes
        return tuple(one for one in known.definitions() if not one.live) if known else ()

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The file's lines with their terminators; only a line feed ends a line."""
        if self._lines is None:
            self._lines = line_diff.split(self.data)
        return self._lines

    def is_blob(self, name: str | None) -> bool:
        """Tell whether git calls this content so (gitformat-object: ``blob SIZE NUL`` and the bytes).

        ``name`` may be abbreviated as git does it; None, and what is too short to tell, is no name.
        """
        if name is None or len(name) < _SHORTEST_BLOB:
            return False
        make = _BLOB_HASHES.get(len(name), hashlib.sha1)
        digest = make(b"blob %d\0" % len(self.data) + self.data, usedforsecurity=False).hexdigest()
        return digest.startswith(name)


def matches(data: bytes, needle: Sequence[bytes]) -> tuple[int, ...]:
    """Return the 1-based lines at which the lines of ``needle`` stand, overlaps included.

    All of them, or the first ones and more than ``limits.PLACES``.
    """
    text = b"".join(needle)
    if not text:
        return ()
    found = []
    line = 1
    counted = 0
    at = data.find(text)
    while at != -1:
        starts = at == 0 or data[at - 1 : at] == b"\n"
        ends = text.endswith(b"\n") or at + len(text) == len(data)
        if starts and ends:
            line += data.count(b"\n", counted, at)
            counted = at
            found.append(line)
            if len(found) > limits.PLACES:
                break
        at = data.find(text, at + 1)
    return tuple(found)


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
        if isinstance(found, Located) and (why := _doubt(hunk, target, found.line, back=back)):
            found = Lost(*why, found.scope or None, (found.line,))
        answers.append(found)
    return tuple(answers)


def _doubt(hunk: Hunk, target: Target, line: int, *, back: bool) -> tuple[str, str] | None:
    """Return the code and the words for what is against a place that is the only one left, if anything."""
    if fault := _fault(hunk, target, line):
        return "elsewhere", fault
    if _is_in(hunk, target):
        return "both-ways", _BOTH
    if back and (_slides(hunk) or _still_there(hunk, target, line)):
        return "both-ways", _BOTH
    return None


def _is_in(hunk: Hunk, target: Target) -> bool:
    """Tell whether what a hunk would leave stands in the file too, where it may have been written for."""
    other = hunk.reversed()
    return bool(other.old) and any(
        _at_edges(other, target, there) and _header_holds(hunk, target, there)
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
    kept = {_shown(text) for kind, text in back.lines if kind == "-"}
    around = target.scopes.at(line).split(".")
    homes = {".".join(around[:n]) for n in range(len(around) + 1)}
    for kind, text in back.lines:
        shown = _shown(text)
        if kind != "+" or shown is None or shown in kept:
            continue
        name = shown.split()[-1]
        inner = text[:1].isspace()
        for one in target.scopes.definitions():
            home, _, last = one.name.rpartition(".")
            if last == name and (home in homes if inner else not home):
                return True
    return False


def _shown(line: bytes) -> str | None:
    """Return the ``class`` or ``def`` and the name that a line of code begins with."""
    shown = re.match(_CODE, _text(line))
    return shown[1] if shown else None


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
        written = _written(hunk)
        if isinstance(text, Lost):
            return cls((), told=False, lost=text)
        fits = tuple(line for line in text if _header_holds(hunk, target, line))
        # The header tells what was above the hunk; upstream may have put something else in between.
        below = tuple(line for line in text if _defines(hunk, target, line))
        if fits or below:
            told = not fits or bool(below) or _names_top(hunk, target)
            return cls(fits or below, told=told, lost=None)
        places = _listed(target, hunk, text)
        message = (
            f"its text stands at {places}, but it was written for the part below `{hunk.section}`"
        )
        return cls((), told=False, lost=Lost("elsewhere", message, written, text))


def _matches(hunk: Hunk, target: Target) -> tuple[int, ...] | Lost:
    """Return the lines at which a hunk's text stands, held to the edges that it belongs to."""
    written = _written(hunk)
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
        return Lost(
            "ambiguous" if lines else "absent",
            many if lines else "its text is not there",
            written,
            lines,
        )
    held = tuple(line for line in lines if _at_edges(hunk, target, line))
    if held:
        return held
    edge = "the end" if _belongs_at_end(hunk) else "the first line"
    there = ", ".join(f"line {line}" for line in lines[:5])
    message = f"nothing follows its change, so it belongs at the end of the file: its text is at {there}, and more follows"
    if edge != "the end":
        message = f"it was written for the first line of the file, and its text is at {there}"
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
        shown = _shown(text)
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
            lost[i] = Lost("order", message, _written(hunks[i]), options[n])
    return [one for one in left if one]


def _answer(
    hunk: Hunk, options: _Options, left: tuple[int, ...], target: Target, *, held: bool
) -> Located | Lost:
    line = left[0]
    if len(left) > 1:
        if not held:
            places = _listed(target, hunk, left)
            message = f"its text stands in {len(left)} places that nothing tells apart: {places}"
            return Lost("ambiguous", message, _written(hunk), left)
        return Located(hunk.stated, scope_of(hunk, target, hunk.stated), "stated")
    scope = scope_of(hunk, target, line)
    if len(options.fits) > 1:
        return Located(line, scope, "order")
    anchored = scope.endswith((" =", " import"))
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
    return [there for there in at if _is_below(hunk.section, target, there)] == [line]


def _is_below(section: str, target: Target, line: int) -> bool:
    """Tell whether a header is one that git writes for this line, by its two rules for Python files."""
    above = target.lines[line - 2 :: -1] if line > 1 else ()
    heads = (_COLUMN_0, rb"\s*(?:async\s+)?(?:class|def)\s")
    nearest = (next((text for text in above if re.match(head, text)), b"") for head in heads)
    return not section or any(_text(text).strip().startswith(section) for text in nearest)


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


def nearest(hunk: Hunk, target: Target, scope: str | None) -> Near | None:
    """Return the place that is most like the hunk's and what is different there.

    Looks inside the first scope that the hunk was written in when the file still has it.
    """
    import difflib  # noqa: PLC0415

    from vllm_mods.base.line_diff import is_quick  # noqa: PLC0415

    lines = target.lines
    first, last = 0, len(lines)
    if scope and target.scopes is not None and (home := target.scopes.find(scope.split(" | ")[0])):
        first, last = home.start - 1, home.end
    wanted = [text.rstrip(b"\r\n") for text in hunk.old]
    there = [text.rstrip(b"\r\n") for text in lines[first:last]]
    if not is_quick(there, wanted):
        return None
    matcher = difflib.SequenceMatcher(None, there, wanted, autojunk=False)
    best = max(
        (
            block
            for block in matcher.get_matching_blocks()
            if b"".join(wanted[block.b : block.b + block.size]).strip()
        ),
        key=lambda block: block.size,
        default=None,
    )
    if best is None:
        return _alike(wanted, there, first)
    start = first + best.a - best.b
    for i, want in enumerate(wanted):
        line = start + i
        have = lines[line].rstrip(b"\r\n") if 0 <= line < len(lines) else None
        if have != want:
            return Near(
                max(line, 0) + 1, _difference(max(line, 0) + 1, have, want), max(start, 0) + 1
            )
    return Near(start + 1, f"line {start + 1} differs in its line end only", start + 1)


def _alike(wanted: Sequence[bytes], there: Sequence[bytes], first: int) -> Near | None:
    """Return the line that is most like one of a hunk's where none is the same."""
    import difflib  # noqa: PLC0415

    lines = {_text(text): n for n, text in enumerate(there, first + 1) if text.strip()}
    if len(lines) * len(wanted) > _MOST_COMPARED:
        return None
    for want in sorted(wanted, key=len, reverse=True):
        for like in difflib.get_close_matches(_text(want), lines, n=1):
            line = lines[like]
            return Near(line, _difference(line, like.encode(), want), line)
    return None


def _difference(line: int, have: bytes | None, want: bytes) -> str:
    shown = "the end of the file" if have is None else f"`{_clipped(have)}`"
    return f"line {line} is {shown}, and the patch has `{_clipped(want)}`"


def _clipped(line: bytes) -> str:
    text = _text(line).strip()
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _defines(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether all that the hunk changes is below a top-level class or function that it shows."""
    for i, (kind, text) in enumerate(hunk.lines):
        if kind != " ":
            return False
        if re.match(_TOP_LEVEL, text) and line + i in target.heads:
            return True
    return False


def _names_top(hunk: Hunk, target: Target) -> bool:
    """Tell whether the header tells more than the name of a method, which any class may have."""
    shown = re.match(_DEFINITION, hunk.section)
    return bool(hunk.section) and (
        shown is None or any(one.name == shown[2] for one in target.heads.values())
    )


def _header_holds(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether git, making the patch here, could have written its header; of none there is nothing to say."""
    if not hunk.section or target.scopes is None:
        return True
    definition = re.match(_DEFINITION, hunk.section)
    before = bisect.bisect_left(target.tops, line)
    top = target.heads.get(target.tops[before - 1]) if before else None
    if definition is None:
        return top is None
    kind, name = definition[1], definition[2]
    above = target.scopes.above(line)
    candidates = {(scope.kind, scope.name.rsplit(".", 1)[-1]) for scope in (top, above) if scope}
    return (kind, name) in candidates or name in target.scopes.at(line).split(".")


def _listed(target: Target, hunk: Hunk, lines: Sequence[int]) -> str:
    shown = []
    for line in lines[:5]:
        scope = scope_of(hunk, target, line) if target.scopes is not None else ""
        shown.append(f"line {line} (`{scope}`)" if scope else f"line {line}")
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return ", ".join(shown) + more


def _written(hunk: Hunk) -> str | None:
    """Return the name of the class or function that a hunk says it was written in."""
    for text in (hunk.section, *(_text(line) for line in hunk.old)):
        if definition := re.match(_DEFINITION, text):
            return definition[2]
    return None


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")
