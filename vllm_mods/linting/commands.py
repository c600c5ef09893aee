"""The simple commands of a bash script, in order, each with what joins it to its neighbours. Nothing is run.

A tokenizer, no grammar: quotes, comments, continued lines and here-documents are known; what a shell would expand stays as written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_mods.base import limits

_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r]|\\\n)+)|(?P<comment>\#[^\n]*)|(?P<operator>\n|&&|\|\||;;|[;|()]|&(?!>))
    |(?P<redirect>\d*(?:<<<|<<-?|&>>?|>>|[<>])&?[ \t]*)
    |(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;|&()<>'"\\])+)""",
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_OPENING = {"if", "for", "while", "until", "case", "{"}
_CLOSING = {"fi", "done", "esac", "}"}
_KEYWORDS = _OPENING | _CLOSING | {"then", "elif", "else", "do", "!"}
_PREFIXES = {"sudo", "env", "command", "exec", "time", "nice"}


class ScriptError(ValueError):
    """A script in which a quote, a here-document or a block has no end; ``line`` is 1-based."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class Command(NamedTuple):
    """A simple command: ``words`` without quotes and keywords, ``text`` as it stands, ``document`` what is redirected into it.

    ``before`` and ``after`` are the operators around it; ``keywords`` stand in front of it; ``depth`` counts the
    branches, loops, blocks and functions that it is in.
    """

    line: int
    words: tuple[str, ...]
    text: str
    keywords: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    depth: int = 0
    document: str = ""

    @property
    def name(self) -> str:
        """The program, without its path: ``python3`` for every Python."""
        words = [*self.words]
        while words and (_ASSIGNMENT.match(words[0]) or words[0] in _PREFIXES):
            words.pop(0)
        name = words[0].rpartition("/")[2] if words else ""
        return re.sub(r"^python3?(\.\d+)?$", "python3", name)


def split(text: str, line: int = 1) -> tuple[Command, ...]:
    """Return the commands of a script that begins at a line. Raises ``ScriptError``."""
    splitter = _Splitter(text, line)
    splitter.read()
    return tuple(splitter.commands)


@dataclass(slots=True)
class _CommandDraft:
    """A command while it is read."""

    start: int
    line: int
    depth: int
    end: int = 0
    words: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    delimiters: list[str] = field(default_factory=list)

    def command(self, text: str, before: str, after: str) -> Command:
        """Return the command that stands in a text between two operators."""
        parts = tuple(self.words), text[self.start : self.end], tuple(self.keywords)
        return Command(self.line, *parts, before, after, self.depth)


class _Splitter:
    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.at = 0
        self.line = line
        self.depth = 0
        self.parentheses = 0
        self.commands: list[Command] = []
        self.documents: list[tuple[int, str]] = []
        """The commands whose here-documents begin on the next line, by index, each with its delimiter."""

    def read(self) -> None:
        """Read all commands. Raises ``ScriptError``."""
        before = "\n"
        while self.at < len(self.text):
            before = self._command(before)
            if before == "\n":
                for index, delimiter in self.documents:
                    document = self._document(delimiter)
                    self.commands[index] = self.commands[index]._replace(document=document)
                self.documents = []
        if self.depth:
            raise ScriptError(self.commands[-1].line, "a branch, a loop or a block has no end")

    def _token(self) -> tuple[str, str]:
        """Return the next token and its kind. Raises ``ScriptError``."""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise ScriptError(self.line, "a quote or a backslash has no end")
        self.at = match.end()
        self.line += match[0].count("\n")
        return match.lastgroup or "", match[0]

    def _command(self, before: str) -> str:
        """Read one command, if there is one, up to the next operator, and return that."""
        draft = _CommandDraft(self.at, self.line, self.depth + self.parentheses)
        redirect = operator = ""
        while self.at < len(self.text) and not operator:
            start, line = self.at, self.line
            kind, token = self._token()
            if kind == "operator":
                operator = token
            elif kind == "redirect":
                redirect = token.strip().lstrip("0123456789")
                draft.end = self.at
            elif kind == "word":
                if redirect in {"<<", "<<-"}:
                    draft.delimiters.append(_unquote(token))
                elif not redirect:
                    self._word(draft, token, start, line)
                redirect = ""
                draft.end = self.at
        self.parentheses = max(0, self.parentheses + (operator == "(") - (operator == ")"))
        if draft.end > draft.start:
            self.documents += [(len(self.commands), word) for word in draft.delimiters]
            self.commands.append(draft.command(self.text, before, operator))
        elif operator == "\n" and before in {"&&", "||", "|"}:
            return before
        return operator

    def _word(self, draft: _CommandDraft, token: str, start: int, line: int) -> None:
        if not (draft.words or draft.keywords):
            draft.start, draft.line = start, line
        if draft.words or token not in _KEYWORDS:
            draft.words.append(_unquote(token))
        else:
            draft.keywords.append(token)
            self.depth = max(0, self.depth + (token in _OPENING) - (token in _CLOSING))
            draft.depth = self.depth + self.parentheses
            if draft.depth > limits.SCRIPT_NESTING:
                raise ScriptError(line, "it is nested too deeply to be read")

    def _document(self, delimiter: str) -> str:
        """Take the lines up to the delimiter. Raises ``ScriptError``."""
        start, first = self.at, self.line
        while self.at < len(self.text):
            stop = self.text.find("\n", self.at) + 1 or len(self.text)
            row, before = self.text[self.at : stop].strip(), self.at
            self.at = stop
            self.line += 1
            if row == delimiter:
                return self.text[start:before]
        raise ScriptError(first - 1, f"<<{delimiter} has no end")


def _unquote(token: str) -> str:
    return _QUOTED.sub(lambda match: next(filter(None, match.groups()), ""), token)
