"""A few lines of Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Its cells are made by ``code`` and ``plain``, or have no bar in them."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def code(text: str) -> str:
    """Return text as code, whatever backquotes are in it."""
    text = " ".join(text.split())
    fence = "``" if "`" in text else "`"
    blank = " " if fence == "``" else ""
    return f"{fence}{blank}{text}{blank}{fence}" if text else ""


def plain(text: str) -> str:
    """Return text in which no sign means anything to Markdown or HTML."""
    text = " ".join(text.split())  # a cell is one line
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"&#{ord(sign)};")
    return text
