"""Put right what forums and chats do to a recipe; say each change. Pure: text in, text out.

Only what has one reading is touched: a dash that was two hyphens, a quotation mark, a bullet, a line
that lost its indentation or its backslash. Prose (the description, comments) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from vllm_mods.scripts import command_line

# What stands at the left margin of a recipe. Whatever else stands there was indented once.
_MAPPINGS = {"defaults", "env", "metadata", "runtime_config", "executor_config", "builder_config"}
_LISTS = {"mods", "build_args", "pre_exec", "post_exec", "post_commands"}
_VALUES = {
    "recipe_version", "name", "description", "model", "model_revision", "container", "runtime",
    "cluster_only", "solo_only", "min_nodes", "max_nodes", "builder", "executor", "command",
}  # fmt: skip
_TOP = _MAPPINGS | _LISTS | _VALUES
_KEY = re.compile(r"([A-Za-z_][\w-]*)\s*:(?=\s|$)")
_BULLET = re.compile(r"(\s*)[•◦▪‣·●–—*](\s+)(?=\S)")
_DASHES = re.compile(r"(?<!\S)(?:[–—―]|-[–—])(?=[A-Za-z])")
_HYPHENS = str.maketrans({"\u2010": "-", "\u2011": "-", "\u2212": "-"})
_DOUBLE = str.maketrans(dict.fromkeys("“”„‟″", '"'))
# the apostrophe of a word is no quotation mark
_SINGLE = re.compile(r"(?<!\w)[‘’‚‛′]|[‘’‛′](?!\w)")
_SPACES = str.maketrans(
    {"\u00a0": " ", "\u202f": " ", "\u2007": " ", "\u200b": None, "\ufeff": None}
)


class TextRepair(NamedTuple):
    """One line put right; ``line`` is 1-based in the text as it came, ``after`` None if it is gone."""

    line: int
    why: tuple[str, ...]
    before: str
    after: str | None


class _TextLine:
    """A line in the making: what it was, what it is, why."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.before = text
        self.text: str = text
        self.gone = False
        self.why: list[str] = []

    def set(self, text: str, why: str) -> None:
        if text != self.text:
            self.text = text
            self.why.append(why)

    def drop(self, why: str) -> None:
        self.gone = True
        self.why.append(why)

    @property
    def blank(self) -> bool:
        return self.gone or not self.text.strip()

    @property
    def comment(self) -> bool:
        return self.text.lstrip().startswith("#")


def repair(text: str) -> tuple[str, tuple[TextRepair, ...]]:
    """Return the text put right, and what was changed; a sound recipe comes back as it is."""
    lines = [_TextLine(i, line) for i, line in enumerate(text.split("\n"), 1)]
    for line in lines:
        line.set(line.text.translate(_SPACES), "a space or mark that only looks like one")
        if line.text.startswith("\t"):
            body = line.text.lstrip("\t")
            spaces = "  " * (len(line.text) - len(body))
            line.set(spaces + body, "a tab, which YAML does not indent by")
        if re.fullmatch(r"```+\w*\s*", line.text):
            line.drop("the fence around a pasted text")
    for section in _sections(lines):
        _SECTIONS.get(section.key, _quotes_in)(section)
    made = "\n".join(line.text for line in lines if not line.gone)
    changes = tuple(
        TextRepair(line.number, tuple(line.why), line.before, None if line.gone else line.text)
        for line in lines
        if line.why
    )
    return made, changes


def summary(changes: Iterable[TextRepair]) -> tuple[str, ...]:
    """Return each reason once, with the lines it is about: ``lines 12-19, 22: …``."""
    lines: dict[str, list[int]] = {}
    for change in changes:
        for why in change.why:
            lines.setdefault(why, []).append(change.line)
    return tuple(f"{_ranges(numbers)}: {why}" for why, numbers in lines.items())


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
    return f"line{'s' * (len(numbers) > 1)} {shown}"


class _TextSection(NamedTuple):
    """A key at the left margin, its line, and the lines below it."""

    key: str
    head: _TextLine
    part: list[_TextLine]
    margin: int

    @property
    def beside(self) -> str:
        """What stands in the line of the key: a value, ``|``, or nothing."""
        return self.head.text.partition(":")[2].partition(" #")[0].strip()


def _sections(lines: list[_TextLine]) -> list[_TextSection]:
    found: list[_TextSection] = []
    margin = -1
    for line in lines:
        if line.gone:
            continue
        key = _KEY.match(line.text.lstrip(" "))
        if key and key[1] in _TOP and (margin < 0 or _indent_of(line) == margin):
            margin = _indent_of(line)
            found.append(_TextSection(key[1], line, [], margin))
        elif found:
            found[-1].part.append(line)
    for section in found:
        # comments behind a part belong to what follows it
        part = section.part
        while part and (part[-1].blank or (part[-1].comment and _indent_of(part[-1]) <= margin)):
            part.pop()
    return found


def _indent_of(line: _TextLine) -> int:
    return len(line.text) - len(line.text.lstrip(" "))


def _indent(section: _TextSection) -> None:
    """Indent a part of which a line stands at the margin."""
    lost = [line for line in section.part if not line.blank and _indent_of(line) <= section.margin]
    if any(not line.comment for line in lost):
        for line in lost:
            line.set(f"  {line.text}", f"the lost indentation below `{section.key}:`")


def _quotes_in(section: _TextSection) -> None:
    for line in (section.head, *section.part):
        if not line.comment:
            line.set(_SINGLE.sub("'", line.text.translate(_DOUBLE)), "typographic quotes")


def _mapping(section: _TextSection) -> None:
    if not section.beside:
        _indent(section)
    _quotes_in(section)


def _list(section: _TextSection) -> None:
    for line in section.part:
        line.set(_BULLET.sub(r"\1-\2", line.text), "a bullet")
    _quotes_in(section)


def _command(section: _TextSection) -> None:
    is_block = section.beside.startswith("|")
    if section.beside[:1] in {"|", ">"}:
        _indent(section)
    _quotes_in(section)
    for line in (section.head, *section.part):
        line.set(_DASHES.sub("--", line.text.translate(_HYPHENS)), "typographic dashes")
    if is_block:
        _continue(section.part)


def _continue(part: list[_TextLine]) -> None:
    """Have every line go on that the next one, which begins with a dash, is to continue."""
    words = [(i, line) for i, line in enumerate(part) if not line.blank]
    nexts: list[tuple[int, _TextLine | None]] = [*words[1:], (len(part), None)]
    read = ""
    for (i, line), (j, following) in zip(words, nexts, strict=False):
        read += f"{line.text}\n"
        if _in_quotes(read):
            continue
        read = ""
        if line.comment:
            continue
        line.set(re.sub(r"\\[ \t]+$", r"\\", line.text), "blanks behind a backslash, undoing it")
        if following is None or not following.text.lstrip().startswith("-"):
            continue
        if not line.text.endswith("\\"):
            line.set(f"{line.text.rstrip()} \\", "the lost backslash at its end")
        for between in part[i + 1 : j]:
            between.drop("a blank line, which ends the command")


def _in_quotes(text: str) -> bool:
    try:
        command_line.read(text)
    except command_line.ShellError:
        return True
    return False


_SECTIONS: dict[str, Callable[[_TextSection], None]] = {
    **dict.fromkeys(_MAPPINGS, _mapping),
    **dict.fromkeys(_LISTS, _list),
    "command": _command,
    "description": lambda _section: None,  # prose stays as it is
}
