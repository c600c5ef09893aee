"""Elements put into, taken out of and exchanged in the text of a statement, as it is laid out. Pure."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import line_diff

_BEHIND = re.compile(rb"[ \t]*(,?)[ \t]*(?:#[^\n]*)?\r?\n")


class BothChangedError(Exception):
    """Both sides changed one thing, each in its own way."""


class Span(NamedTuple):
    """From where to where something stands in a text."""

    start: int
    end: int


class Splice(NamedTuple):
    """What is to stand in the place of a span."""

    start: int
    end: int
    text: bytes


class Side(NamedTuple):
    """A statement's text, its node, and the line of the file that the text begins with, 1-based."""

    text: bytes
    node: ast.AST
    start: int

    def span(self, first: ast.AST, last: ast.AST) -> Span:
        """Return where one node begins and another ends."""
        lines = line_diff.split(self.text)
        ends = [(first, "lineno", "col_offset"), (last, "end_lineno", "end_col_offset")]
        return Span(
            *(
                sum(map(len, lines[: getattr(node, line) - self.start])) + getattr(node, column)
                for node, line, column in ends
            )
        )


class _Row(NamedTuple):
    """The whole lines of an element that has lines of its own, and whether a comma is behind it."""

    start: int
    end: int
    comma: bool


def check_order(base: Collection[str], *sides: Collection[str]) -> None:
    """Raise ``BothChangedError`` where a side has what is left of the base in another order."""
    for side in sides:
        if [key for key in base if key in side] != [key for key in side if key in base]:
            raise BothChangedError


def added(
    base: Collection[str], side: Iterable[str]
) -> Iterator[tuple[str | None, str | None, list[str]]]:
    """Yield each run of what a side adds, behind the old neighbours of it; None for an end."""
    before: str | None = None
    run: list[str] = []
    for key in [*side, None]:
        if key is not None and key not in base:
            run.append(key)
            continue
        if run:
            yield before, key, run
        before, run = key, []


def edit_text(side: Side, edits: Iterable[Splice]) -> bytes:
    """Return a side's text after edits. Raises ``BothChangedError`` where two of them meet."""
    text, at = side.text, len(side.text)
    for edit in sorted(edits, reverse=True):
        if edit.end > at:
            raise BothChangedError
        text, at = text[: edit.start] + edit.text + text[edit.end :], edit.start
    return text


def comments(text: bytes) -> Counter[str]:
    """Count the comments in a statement. Raises ``BothChangedError`` if it cannot be read."""
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(text).readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise BothChangedError from error
    return Counter(one.string for one in tokens if one.type == tokenize.COMMENT)


def replace(target: Side, now: Span, mine: Side, new: Span) -> Splice:
    """Put an element of the mod in the place of one of the target."""
    text = mine.text[new.start : new.end]
    return Splice(*now, _shift(text, _indentation(mine, new), _indentation(target, now)))


def remove(target: Side, span: Span, before: Span | None, after: Span | None) -> Splice:
    """Take an element out, with the lines or the comma that are its own."""
    row = _row(target, span)
    if row is not None:
        if _above(target, row.start) < row.start:
            raise BothChangedError  # nothing says what the comment above it is about
        return Splice(row.start, row.end, b"")
    cut = Span(span.start, after.start) if after is not None else span
    if after is None and before is not None:
        cut = Span(before.end, span.end)
    if cut == span or b"\n" in target.text[cut.start : cut.end]:
        raise BothChangedError
    return Splice(*cut, b"")


def insert(
    target: Side, after: Span | None, before: Span | None, mine: Side, new: Sequence[Span]
) -> list[Splice]:
    """Put elements of the mod behind one of the target, or before its first.

    On lines of their own where those of both sides are, in the line of their neighbour otherwise.
    """
    anchor = after or before
    if anchor is None:
        raise BothChangedError  # an empty bracket
    row, rows = _row(target, anchor), [_row(mine, one) for one in new]
    if row is None or None in rows:
        texts = [mine.text[one.start : one.end] for one in new]
        if any(b"\n" in text for text in texts):
            raise BothChangedError  # its layout is that of another place
        if after is not None:
            return [Splice(after.end, after.end, b"".join(b", " + text for text in texts))]
        return [Splice(anchor.start, anchor.start, b"".join(text + b", " for text in texts))]
    text = b""
    for span, its in zip(new, rows, strict=True):
        assert its is not None  # noqa: S101  (looked at above)
        comma = b"" if its.comma else b","
        start = _above(mine, its.start)
        lines = mine.text[start : span.end] + comma + mine.text[span.end : its.end]
        text += _shift(lines, _indentation(mine, span), _indentation(target, anchor))
    if after is None:
        at = _above(target, row.start)
        return [Splice(at, at, text)]
    commas = [] if row.comma else [Splice(after.end, after.end, b",")]
    return [*commas, Splice(row.end, row.end, text)]


def _row(side: Side, span: Span) -> _Row | None:
    start = side.text.rfind(b"\n", 0, span.start) + 1
    behind = _BEHIND.match(side.text, span.end)
    if behind is None or side.text[start : span.start].strip():
        return None
    return _Row(start, behind.end(), bool(behind[1]))


def _above(side: Side, start: int) -> int:
    """Return where the comments begin that stand above a line."""
    lines = line_diff.split(side.text[:start])
    for line in reversed(lines):
        if not line.lstrip().startswith(b"#"):
            break
        start -= len(line)
    return start


def indentation(line: bytes) -> bytes:
    """Return what a line begins with before it says something."""
    return line[: len(line) - len(line.lstrip())]


def _indentation(side: Side, span: Span) -> bytes:
    return indentation(side.text[side.text.rfind(b"\n", 0, span.start) + 1 :])


def _shift(text: bytes, old: bytes, new: bytes) -> bytes:
    """Move the lines of a text to another indentation; its first as well if it begins with one."""
    if old == new or (b"\n" not in text and not text.startswith(old)):
        return text
    if b'"""' in text or b"'''" in text or b"\\\n" in text:
        raise BothChangedError  # within a text, blanks count
    return b"".join(
        new + line[len(old) :] if line.startswith(old) and line.strip() else line
        for line in line_diff.split(text)
    )
