r"""A command line as bash reads it: words, quotes, continued lines, comments, several commands.

Nothing is run and nothing is expanded. What only a running shell can fill in (``$HOME``, ``*``) stays
in its word as written and is listed in ``CommandScript.unknown``. A test asks bash itself.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import limits

# As text: `re` compiles them where they are first used.
_ASSIGNMENT = r"(?a)([A-Za-z_]\w*)="
_BLANKS = r"(?:[ \t]|\\\n)+"
_CONTROL = r"[;|()\n]|&(?!>)"
_COMMENT = r"#[^\n]*"
_REDIRECTION = r"(?:\d+(?=[<>])|(?=[<>&]))[<>&|]*[ \t]*"  # `2>` is one operator
_PLAIN = r"""[^ \t;&|()\n<>'"\\$`]+"""
_PLAIN_IN_DOUBLE = r'[^"\\$`]+'
_SINGLE = r"'[^']*'"
_COMMAND = r"`[^`]*`"
_NAME = r"(?a)\$([A-Za-z_]\w*|[0-9@*#?$!-])"
_SEVERAL = r"[*?\[]|^~|\{[^{}]*(,|\.\.)[^{}]*\}"
"""What bash makes several words of, or another one: patterns, a home, ``{a,b}`` and ``{1..3}``."""


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


def flag_values(argv: Sequence[str], *names: str) -> Iterator[str]:
    """Yield what follows a flag, wherever it stands: ``names`` are its long name, of which the beginning will do, and short ones."""
    for word, after in zip(argv, (*argv, "")[1:], strict=True):
        typed, equals, value = word.partition("=")
        typed = typed.replace("_", "-").partition(".")[0]
        if typed in names or (len(typed) > len("--max") and names[0].startswith(typed)):
            yield value if equals else "" if after.startswith("--") else after


def flag_value(argv: Sequence[str], *names: str) -> str | None:
    """Return what follows a flag where it stands last, None where it is not there."""
    return next(reversed([*flag_values(argv, *names)]), None)


def flag_number(argv: Sequence[str], default: int, *names: str) -> int:
    """Return the last number that follows a flag, as ``flag_values`` has it; ``default`` where there is none."""
    texts = (text for text in flag_values(argv, *names) if text.isascii() and text.isdigit())
    return int([str(default), *texts][-1])


def read(text: str) -> CommandScript:
    """Read a script of simple commands. Raises ``ShellError`` for a quote that is not closed.

    Also for one that is too long for a command that people write.
    """
    if len(text) > limits.SERVE_COMMAND:
        why = f"a command of {len(text):,} characters; the limit is {limits.SERVE_COMMAND:,}"
        raise ShellError(1, why)
    return _CommandLineReader(text).read()


def exported(script: CommandScript) -> dict[str, str]:
    """Return the variables that a script exports."""
    variables: dict[str, str] = {}
    for command in script.commands:
        words = command.argv[1:] if command.argv[:1] == ("export",) else ()
        variables |= {
            name: value for name, _, value in (word.partition("=") for word in words if "=" in word)
        }
        variables |= command.assignments if not command.argv else ()
    return variables


class _CommandLineReader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.counted = (0, 1)
        self.commands: list[WordedCommand] = []
        self.unknown: list[Unknown] = []
        self.comments: list[tuple[int, str]] = []
        self.words: list[str] = []
        self.assignments: list[tuple[str, str]] = []
        self.began = 1

    @property
    def line(self) -> int:
        at, line = self.counted
        self.counted = (self.at, line + self.text.count("\n", at, self.at))
        return self.counted[1]

    def take(self, pattern: str) -> str | None:
        """Go past what a pattern matches here, and return it; None if it does not."""
        match = re.compile(pattern).match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[0]

    def closed(self, pattern: str, why: str) -> str:
        """Take what begins here and has an end. Raises ``ShellError`` if it has none."""
        text = self.take(pattern)
        if text is None:
            raise ShellError(self.line, why)
        return text

    def read(self) -> CommandScript:
        while self.at < len(self.text):
            line = self.line
            if self.take(_BLANKS) is not None:
                continue
            if self.take(_CONTROL) is not None:
                self.finish()
            elif (comment := self.take(_COMMENT)) is not None:
                self.comments.append((line, comment))
            else:
                self.began = self.began if self.words or self.assignments else line
                self.argument(line)
        self.finish()
        return CommandScript(tuple(self.commands), tuple(self.unknown), tuple(self.comments))

    def argument(self, line: int) -> None:
        """Read one word, or leave out a redirection with the word behind it: they are no arguments."""
        start = self.at
        if self.take(_REDIRECTION) is not None:
            self.word()
            self.unknown.append(Unknown(line, self.text[start : self.at]))
            return
        word = self.word()
        assigned = re.compile(_ASSIGNMENT).match(self.text, start, self.at)
        if assigned and not self.words:
            self.assignments.append((assigned[1], word[assigned.end() - start :]))
        else:
            self.words.append(word)

    def finish(self) -> None:
        if self.words or self.assignments:
            parts = tuple(self.assignments), tuple(self.words)
            self.commands.append(WordedCommand(*parts, self.began))
        self.words, self.assignments = [], []

    def word(self) -> str:
        """Read up to the next blank or operator outside quotes."""
        start, line = self.at, self.line
        text, bare = "", ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "'":
                text += self.closed(_SINGLE, "a ' is not closed")[1:-1]
            elif char == '"':
                text += self.double()
            elif char == "\\":
                is_last = self.at + 1 == len(self.text)
                text += self.escaped() or char * is_last
            elif char in "$`":
                text += self.expansion()
            elif (plain := self.take(_PLAIN)) is not None:
                text, bare = text + plain, bare + plain
            else:
                break
        if re.search(_SEVERAL, bare):
            self.unknown.append(Unknown(line, self.text[start : self.at]))
        return text

    def escaped(self) -> str:
        """Return the character behind a backslash; nothing for a line end, or at the end."""
        after = self.text[self.at + 1 : self.at + 2]
        self.at += 2
        return "" if after == "\n" else after

    def double(self) -> str:
        line = self.line
        self.at += 1
        text = ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return text
            if char == "\\":
                after = self.escaped()
                # within double quotes a backslash takes only these with it
                text += after if after in '$`"\\' else char + after
            elif char in "$`":
                text += self.expansion()
            else:
                text += self.take(_PLAIN_IN_DOUBLE) or ""
        raise ShellError(line, 'a " is not closed')

    def expansion(self) -> str:
        """Read ``$name``, ``${…}``, ``$(…)`` or ```…``` as it stands; a lone ``$`` is a character."""
        start, line = self.at, self.line
        opener = self.text[start : start + 2]
        if opener[:1] == "`":
            self.closed(_COMMAND, "a ` is not closed")
        elif opener in ("$(", "${"):
            self.at = self._matching(start + 1, line)
        elif self.take(_NAME) is None:
            self.at += 1
            if opener not in ("$'", '$"'):
                return "$"
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
