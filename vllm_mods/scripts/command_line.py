"""A command line as bash reads it: words, quotes, continued lines, comments, several commands.

Nothing is run and nothing is expanded. What only a running shell can fill in (``$HOME``, ``*``) stays
in its word as written and is listed in ``Script.unknown``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vllm_mods.base import limits

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
_BLANK = " \t"
_CONTROL = ";&|()\n"
_REDIRECT = "<>"


class WordedCommand(NamedTuple):
    """One simple command: ``NAME=value`` in front of it, its words, its 1-based first line."""

    assignments: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]
    line: int


class Unknown(NamedTuple):
    """Text at a 1-based line that a shell would replace by something that cannot be known here."""

    line: int
    text: str


class CommandScript(NamedTuple):
    """Everything that bash would run, in order; ``comments`` are 1-based lines and their text."""

    commands: tuple[WordedCommand, ...]
    unknown: tuple[Unknown, ...]
    comments: tuple[tuple[int, str], ...]


class ShellError(ValueError):
    """Text that bash refuses, such as an open quote; ``line`` is 1-based."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


def read(text: str) -> CommandScript:
    """Read a script of simple commands. Raises ``ShellError`` for a quote that is not closed.

    Also for one that is too long for a command that people write.
    """
    if len(text) > limits.SERVE_COMMAND:
        raise ShellError(
            1,
            f"a command of {len(text):,} letters: {limits.SERVE_COMMAND:,} is the most that is read",
        )
    return _CommandLineReader(text).read()


class _CommandLineReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[WordedCommand] = []
        self.unknown: list[Unknown] = []
        self.comments: list[tuple[int, str]] = []
        self.words: list[str] = []
        self.assignments: list[tuple[str, str]] = []
        self.began = 1
        self.counted = (0, 1)

    @property
    def line(self) -> int:
        at, line = self.counted
        self.counted = (self.at, line + self.text.count("\n", at, self.at))
        return self.counted[1]

    def read(self) -> CommandScript:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _BLANK or self.text.startswith("\\\n", self.at):
                self.at += 1 + (char == "\\")
            elif char in _CONTROL and not self.text.startswith("&>", self.at):
                self.finish()
                self.at += 1
            elif char == "#":
                end = self._end_of_line()
                self.comments.append((self.line, self.text[self.at : end]))
                self.at = end
            else:
                self.take(char)
        self.finish()
        return CommandScript(tuple(self.commands), tuple(self.unknown), tuple(self.comments))

    def take(self, char: str) -> None:
        """Read one word, or a redirection with the word behind it."""
        if not self.words and not self.assignments:
            self.began = self.line
        start = self.at
        if char in _REDIRECT or char == "&":
            self.redirection(start)
            return
        word = self.word()
        raw = self.text[start : self.at]
        if raw.isdigit() and self.text[self.at : self.at + 1] in tuple(_REDIRECT):
            self.redirection(start)  # `2>` is one operator
            return
        assigned = _ASSIGNMENT.match(raw)
        if assigned and not self.words:
            self.assignments.append((assigned[1], word[assigned.end() :]))
        else:
            self.words.append(word)

    def redirection(self, start: int) -> None:
        """Leave out a redirection: its operator and its word are no arguments."""
        line = self.line
        while self.text[self.at : self.at + 1] in ("<", ">", "&", "|"):
            self.at += 1
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        self.word()
        self.unknown.append(Unknown(line, self.text[start : self.at]))

    def finish(self) -> None:
        if self.words or self.assignments:
            self.commands.append(
                WordedCommand(tuple(self.assignments), tuple(self.words), self.began)
            )
        self.words, self.assignments = [], []

    def word(self) -> str:
        """Read up to the next blank or operator outside quotes."""
        made: list[str] = []
        start, line = self.at, self.line
        special: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in _BLANK or char in _CONTROL or char in _REDIRECT:
                break
            if char == "'":
                made.append(self.single())
            elif char == '"':
                made.append(self.double())
            elif char == "\\":
                made.append(self.escaped())
            elif char in {"$", "`"}:
                made.append(self.expansion())
            else:
                special.append(char)
                made.append(char)
                self.at += 1
        raw = self.text[start : self.at]
        if (
            any(char in special for char in "*?[")
            or special[:1] == ["~"]
            or _braces("".join(special))
        ):
            self.unknown.append(Unknown(line, raw))
        return "".join(made)

    def single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise ShellError(self.line, "a ' is not closed")
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def double(self) -> str:
        line = self.line
        self.at += 1
        made: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return "".join(made)
            if char == "\\":
                after = self.text[self.at + 1 : self.at + 2]
                # within double quotes a backslash takes only these with it
                made.append(
                    after if after in tuple('$`"\\') else "" if after == "\n" else char + after
                )
                self.at += 2
            elif char in {"$", "`"}:
                made.append(self.expansion())
            else:
                made.append(char)
                self.at += 1
        raise ShellError(line, 'a " is not closed')

    def escaped(self) -> str:
        after = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        if after == "\n":
            return ""
        return after or "\\"

    def expansion(self) -> str:
        """Read ``$name``, ``${…}``, ``$(…)`` or ```…``` as it stands; a lone ``$`` is a character."""
        start, line = self.at, self.line
        opener = self.text[start : start + 2]
        if opener[:1] == "`":
            end = self.text.find("`", start + 1)
            if end < 0:
                raise ShellError(line, "a ` is not closed")
            self.at = end + 1
        elif opener in ("$(", "${"):
            self.at = self._matching(start + 1, line)
        else:
            name = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])", re.ASCII).match(self.text, start)
            if name is None:
                self.at += 1
                if opener not in ("$'", '$"'):
                    return "$"
            else:
                self.at = name.end()
        raw = self.text[start : self.at]
        self.unknown.append(Unknown(line, raw))
        return raw

    def _matching(self, opening: int, line: int) -> int:
        pairs = {"(": ")", "{": "}"}
        opener = self.text[opening]
        depth = 0
        for i in range(opening, len(self.text)):
            depth += (self.text[i] == opener) - (self.text[i] == pairs[opener])
            if depth == 0:
                return i + 1
        raise ShellError(line, f"a ${opener} is not closed")

    def _end_of_line(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end


def _braces(text: str) -> bool:
    """Tell whether bash would make several words of ``{a,b}`` or ``{1..3}``."""
    return re.search(r"\{[^{}]*(,|\.\.)[^{}]*\}", text) is not None
