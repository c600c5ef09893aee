"""The statements of a bash script, as they are read: nothing is run, nothing expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# What a script's own programs read: their settings, and not vLLM's.
OWN = re.compile(
    r"(?:https?|ftp|all|no)_proxy|(?:PIP|UV|GIT|CURL|WGET|SSL|REQUESTS|APT|DEBIAN|LC)_\w+|PATH|PYTHONPATH"
    r"|LD_LIBRARY_PATH|TMPDIR|LANG|MAX_JOBS|NVCC_\w+|TORCH_CUDA_ARCH_LIST",
    re.IGNORECASE,
)


class BashError(ValueError):
    """Text that bash's grammar does not allow; ``line`` is 1-based."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")
        self.line = line
        self.why = why


class Variable(NamedTuple):
    """``$NAME`` or ``${NAME:-default}``; ``default`` is None where there is none."""

    name: str
    default: Word | None = None


class Unread(NamedTuple):
    """What only a running shell knows: ``$(…)``, ``*``, ``${X#y}``."""

    text: str


class Word(NamedTuple):
    """One word, as it stands there (``text``) and in parts, quotes taken off."""

    text: str
    parts: tuple[str | Variable | Unread, ...]

    def value(self, variables: Mapping[str, str]) -> str | None:
        """Return what the word comes to, None if something in it cannot be known."""
        out = ""
        for part in self.parts:
            if isinstance(part, str):
                out += part
                continue
            known = None
            if isinstance(part, Variable):
                known = variables.get(part.name)
                if not known and part.default is not None:
                    known = part.default.value(variables)
            if known is None:
                return None
            out += known
        return out


class Redirect(NamedTuple):
    """``<``, ``>``, ``>>``, ``<<`` (with the text that follows as ``target``), ``<<<`` and so on."""

    operator: str
    descriptor: str
    target: Word


class Call(NamedTuple):
    """A simple command, with what is assigned in front of it."""

    line: int
    text: str
    argv: tuple[Word, ...]
    assignments: tuple[tuple[str, Word], ...] = ()
    redirects: tuple[Redirect, ...] = ()


class Assign(NamedTuple):
    """``NAME=value``, or with ``export`` and the like in front."""

    line: int
    text: str
    name: str
    value: Word
    exported: bool


class Pipe(NamedTuple):
    """Commands, each reading what the one before it writes."""

    line: int
    text: str
    stages: tuple[Statement, ...]


class Chain(NamedTuple):
    """``left && right`` or ``left || right``."""

    line: int
    text: str
    left: Statement
    operator: str
    right: Statement


class Not(NamedTuple):
    """``! command``."""

    line: int
    text: str
    inner: Statement


class If(NamedTuple):
    """Branches of a condition and what it guards; the last one's condition may be empty: ``else``."""

    line: int
    text: str
    branches: tuple[tuple[tuple[Statement, ...], tuple[Statement, ...]], ...]


class For(NamedTuple):
    """``for name in values``."""

    line: int
    text: str
    name: str
    values: tuple[Word, ...]
    body: tuple[Statement, ...]


class Block(NamedTuple):
    """``{ … }``, or ``( … )`` in a shell of its own."""

    line: int
    text: str
    body: tuple[Statement, ...]
    subshell: bool


class BashFunction(NamedTuple):
    """``name() { … }``."""

    line: int
    text: str
    name: str
    body: tuple[Statement, ...]


class Test(NamedTuple):
    """``[ … ]`` or ``[[ … ]]``."""

    line: int
    text: str


class Other(NamedTuple):
    """A statement of a kind that is not read further: ``kind`` is the grammar's name for it."""

    line: int
    text: str
    kind: str
    body: tuple[Statement, ...]


Statement = Call | Assign | Pipe | Chain | Not | If | For | Block | BashFunction | Test | Other


class Script(NamedTuple):
    """A script: its first line if that names an interpreter, its statements, its number of lines."""

    interpreter: str
    body: tuple[Statement, ...]
    lines: int


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield every statement, each before those in it."""
    for one in body:
        yield one
        yield from walk(inside(one))


def inside(one: Statement) -> tuple[Statement, ...]:
    """Return the statements directly in one."""

    def found(value: object) -> Iterator[Statement]:
        if isinstance(value, Statement):
            yield value
        elif type(value) is tuple:
            for each in value:
                yield from found(each)

    return tuple(each for value in one for each in found(value))
