"""Find the one place where a hunk belongs, or say why there is none.

A hunk matches byte for byte or not at all. A match, at the stated line or
elsewhere, counts only when it is proven: the classes and functions around it are
those the hunk was written in, and it is the only such match. What the hunk was
written in comes, in this order, from

``lock``        the scopes that mod.lock recorded,
``header``      the section header behind ``@@`` (git writes the nearest ``class`` or
                ``def`` above the hunk, or the nearest line that starts in column 0),
``definition``  ``class`` or ``def`` lines that start in column 0 in the hunk itself,
``anchor``      the import or assignment of the module that the hunk is part of,
``unique``      nothing but its being the only match in the file.

The last three need a match that is unique in the whole file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mods.diff import Hunk
    from vllm_mods.scopes import Scopes

_DEFINITION = r"\s*(?:async\s+)?(class|def)\s+(\w+)"
# An indented one tells no class: every other class may have a method of that name.
_TOP_LEVEL = rb"(?:async\s+)?(?:class|def)\s"
MOST_PLACES = 1000
"""A text that stands in more places than this in a file belongs to none of them."""
_COLUMN_0 = rb"[A-Za-z_$]"


class Found(NamedTuple):
    """A proven place: 1-based ``line`` of the hunk's first old line, and what proves it."""

    line: int
    scope: str
    proof: str


class Lost(NamedTuple):
    """No proven place. ``code`` is ``absent``, ``elsewhere``, ``ambiguous`` or ``unprovable``.

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
    ``scopes.UnparsableError``.
    """

    def __init__(self, data: bytes, parse: Callable[[bytes], Scopes] | None) -> None:
        self.data = data
        self.parse = parse
        self._scopes: Scopes | None = None
        self._lines: tuple[bytes, ...] | None = None

    @property
    def scopes(self) -> Scopes | None:
        """The file's scopes; None where it has none."""
        if self._scopes is None and self.parse is not None:
            self._scopes = self.parse(self.data)
        return self._scopes

    @property
    def lines(self) -> tuple[bytes, ...]:
        """The file's lines with their terminators; only a line feed ends a line."""
        if self._lines is None:
            self._lines = split(self.data)
        return self._lines


def split(data: bytes) -> tuple[bytes, ...]:
    """Split into lines that keep their line feed; nothing else ends a line."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    if parts[-1]:
        lines.append(parts[-1])
    return tuple(lines)


def matches(data: bytes, needle: Sequence[bytes]) -> tuple[int, ...]:
    """Return the 1-based lines at which the lines of ``needle`` stand, overlaps included.

    All of them, or the first ones and more than ``MOST_PLACES``.
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
            if len(found) > MOST_PLACES:
                break
        at = data.find(text, at + 1)
    return tuple(found)


def fits_at(hunk: Hunk, data: bytes, line: int) -> bool:
    """Tell whether the hunk's old lines stand at exactly this line."""
    lines = split(data)
    old = hunk.old
    stands = bool(old) and line > 0 and lines[line - 1 : line - 1 + len(old)] == old
    return stands and not _cuts_file(hunk, lines, line)


def place(hunk: Hunk, target: Target, recorded: str | None) -> Found | Lost:
    """Find the hunk's one proven place. ``recorded`` is its scope chain from mod.lock.

    Raises ``scopes.UnparsableError`` if the proof needs scopes that cannot be read.
    """
    if not hunk.old:
        return Lost(
            code="unprovable",
            message="the hunk has no context lines, so nothing proves where it belongs",
            scope=recorded,
        )
    lines = matches(target.data, hunk.old)
    if not lines or len(lines) > MOST_PLACES:
        many = f"its text stands in more than {MOST_PLACES:,} places"
        return Lost(
            code="ambiguous" if lines else "absent",
            message=many if lines else "its text is not there",
            scope=_written(hunk, recorded),
            lines=lines,
        )
    expected = _Expected(hunk, recorded)
    proven = [line for line in lines if expected.holds(target, line)]
    if not proven and expected.header:
        # It tells what was above the hunk; upstream may have put something else in between.
        proven = [line for line in lines if _defines(hunk, target, line)]
        expected.header = "" if proven else expected.header
    if not proven:
        places = _listed(target, hunk, lines)
        return Lost(
            code="elsewhere",
            message=f"its text stands at {places}, but it was written for {expected.words()}",
            scope=_written(hunk, recorded),
            lines=lines,
        )
    if len(proven) > 1:
        places = _listed(target, hunk, tuple(proven))
        return Lost(
            code="ambiguous",
            message=f"its text stands in {len(proven)} places that nothing tells apart: {places}",
            scope=_written(hunk, recorded),
            lines=tuple(proven),
        )
    line = proven[0]
    if _cuts_file(hunk, target.lines, line):
        return Lost(
            code="elsewhere",
            message="it leaves a last line without line end, but it does not reach the end of the file",
            scope=_written(hunk, recorded),
            lines=lines,
        )
    scope = scope_of(hunk, target, line)
    return Found(line=line, scope=scope, proof=expected.proof(scope))


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

    from vllm_mods.lines import is_quick  # noqa: PLC0415

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
        return None
    start = first + best.a - best.b
    for i, want in enumerate(wanted):
        line = start + i
        have = lines[line].rstrip(b"\r\n") if 0 <= line < len(lines) else None
        if have != want:
            shown = "the end of the file" if have is None else f"`{_text(have)}`"
            words = f"there is {shown} where the patch has `{_text(want)}`"
            return Near(max(line, 0) + 1, words, max(start, 0) + 1)
    return Near(start + 1, "only the line endings differ", start + 1)


def redefines(hunk: Hunk) -> bool:
    """Tell whether the hunk changes ``class`` or ``def`` lines, and so the scopes themselves."""
    return any(kind != " " and re.match(_DEFINITION, _text(text)) for kind, text in hunk.lines)


class _Expected:
    """Where a hunk was written, from the best source there is."""

    def __init__(self, hunk: Hunk, recorded: str | None) -> None:
        self.hunk = hunk
        self.recorded = recorded
        self.header = hunk.section if recorded is None else ""

    def holds(self, target: Target, line: int) -> bool:
        if target.scopes is None:
            return True
        if self.recorded is not None:
            return scope_of(self.hunk, target, line) == self.recorded
        if self.header:
            return _header_holds(self.header, target, line)
        return True

    def proof(self, scope: str) -> str:
        if self.recorded is not None:
            return "lock"
        if self.header:
            return "header"
        if any(re.match(_TOP_LEVEL, text) for text in self.hunk.old):
            return "definition"
        return "anchor" if scope and scope.endswith((" =", " import")) else "unique"

    def words(self) -> str:
        if self.recorded is not None:
            return f"`{self.recorded or 'module level'}`"
        return f"the part below `{self.header}`"


def _defines(hunk: Hunk, target: Target, line: int) -> bool:
    """Tell whether all that the hunk changes is below a top-level class or function that it shows."""
    assert target.scopes is not None  # noqa: S101  (the caller has looked)
    heads = {scope.head for scope in target.scopes.definitions()}
    for i, (kind, text) in enumerate(hunk.lines):
        if kind != " ":
            return False
        if re.match(_TOP_LEVEL, text) and line + i in heads:
            return True
    return False


def _header_holds(header: str, target: Target, line: int) -> bool:
    """Tell whether git, making the patch here, could have written this header."""
    assert target.scopes is not None  # noqa: S101  (the caller has looked)
    definition = re.match(_DEFINITION, header)
    column_0 = next(
        (i for i in range(line - 1, 0, -1) if re.match(_COLUMN_0, target.lines[i - 1])),
        None,
    )
    heads = {scope.head: scope for scope in target.scopes.definitions()}
    top = heads.get(column_0) if column_0 is not None else None
    if definition is None:
        return top is None
    kind, name = definition[1], definition[2]
    above = target.scopes.above(line)
    candidates = {(scope.kind, scope.name.rsplit(".", 1)[-1]) for scope in (top, above) if scope}
    return (kind, name) in candidates or name in target.scopes.at(line).split(".")


def _cuts_file(hunk: Hunk, lines: Sequence[bytes], line: int) -> bool:
    """Tell whether the hunk would leave a line without terminator inside the file."""
    unterminated = bool(hunk.new) and not hunk.new[-1].endswith(b"\n")
    return unterminated and line - 1 + len(hunk.old) != len(lines)


def _listed(target: Target, hunk: Hunk, lines: Sequence[int]) -> str:
    shown = []
    for line in lines[:5]:
        scope = scope_of(hunk, target, line) if target.scopes is not None else ""
        shown.append(f"line {line} (`{scope}`)" if scope else f"line {line}")
    more = f" and {len(lines) - 5} more" if len(lines) > 5 else ""
    return ", ".join(shown) + more


def _written(hunk: Hunk, recorded: str | None) -> str | None:
    if recorded is not None:
        return recorded
    for text in (hunk.section, *(_text(line) for line in hunk.old)):
        if definition := re.match(_DEFINITION, text):
            return definition[2]
    return None


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode("utf-8", "replace")
