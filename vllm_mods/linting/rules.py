"""Rules for a mod's ``run.sh``: failures that count as success, network content, settings that end with the process.

A launcher runs the script in a process of its own, in each container, and goes on if it exits with 0.
So whatever fails without ending the script is a mod that is not in, and nobody is told. Each rule is
here for mods that were found to fail so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.linting.commands import Command
from vllm_mods.scripts.command_line import PROGRAM_VARIABLES

_Flaws = Iterator[tuple[FindingCode, str]]


class Flaw(NamedTuple):
    """One finding: a stable ``code``, the 1-based line, and what comes of it."""

    code: FindingCode
    line: int
    message: str


_CHANGES = {"patch", "cp", "mv", "install", "ln", "perl"}
_CHANGES |= {"bash", "sh"}  # another script of the mod
_CHANGES |= {"pip", "pip3", "uv", "rm", "tar", "unzip", "rsync", "curl", "wget", "mkdir", "tee"}
_SAYS = {"true", ":", "echo", "printf"}
_FETCHES = {"curl", "wget"}
_READERS = {"patch", "git", "bash", "sh", "python3"}
_AND_OR = {"&&", "||"}
_PULL = re.compile(r"github\.com/[\w.-]+/[\w.-]+/pull/\d+|patch-diff\.githubusercontent\.com")
_IN_PLACE = re.compile(r"\s-\w*i|--in-place")
_NEAR = 200  # commands before one that are looked at


def check(commands: Sequence[Command], text: str, *, strict: bool = False) -> tuple[Flaw, ...]:
    """Return what is wrong with a script, by line; ``strict`` if it was started with ``-e``."""
    flaws = [*_goes_on(commands, strict=strict), *_lost_exports(commands, text)]
    for i, command in enumerate(commands):
        for rule in (_fails_open, _in_place, _piped, _network, _python_edit, _fuzz):
            flaws += (Flaw(code, command.line, why) for code, why in rule(commands, i))
    return tuple(sorted(dict.fromkeys(flaws), key=lambda flaw: (flaw.line, flaw.code)))


# --- does a failure end the script


def _goes_on(commands: Sequence[Command], *, strict: bool) -> Iterator[Flaw]:
    """Find the first change of a script that goes on whatever fails."""
    sets = [command.words[1:] for command in commands if command.name == "set"]
    if strict or any("e" in _option_letters(words) for words in sets):
        return
    for i, command in enumerate(commands):
        alone = command.depth == 0 and _begins_list(command) and command.after not in _AND_OR
        if alone and any(map(_changes, _pipeline(commands, i))):
            why = "the script goes on and may still exit with 0: put `set -euo pipefail` at the top"
            yield Flaw(FindingCode.NO_SET_E, command.line, f"if `{_short(command)}` fails, {why}")
            return


def is_strict(first_line: str) -> bool:
    """Return True if the first line of a script starts a shell that ends where a command fails."""
    return first_line.startswith("#!") and "e" in _option_letters(first_line.split()[1:])


def _option_letters(words: Sequence[str]) -> set[str]:
    letters: set[str] = set()
    named = False
    for word in words:
        if named and word == "errexit":
            letters.add("e")
        elif word.startswith("-"):
            letters.update(word[1:])
        named = word.startswith("-") and word.endswith("o")
    return letters


def _begins_list(command: Command) -> bool:
    return command.before not in {"&&", "||", "|"}


def _pipeline(commands: Sequence[Command], i: int) -> Iterator[Command]:
    """Yield a command and those that read what it writes."""
    yield commands[i]
    for after in commands[i + 1 :]:
        if after.before != "|":
            return
        yield after


def _fails_open(commands: Sequence[Command], i: int) -> _Flaws:
    """``… || true``: what failed counts as done."""
    if commands[i].after != "||" or i + 1 == len(commands) or _ends(commands, i + 1):
        return
    start = i
    is_block = "}" in commands[i].keywords
    while start > i - _NEAR and start and (is_block or not _begins_list(commands[start])):
        start -= 1
        is_block = is_block and "{" not in commands[start].keywords
    if any(map(_changes, commands[start : i + 1])):
        first, right = commands[i], commands[i + 1]
        why = f"may fail, and `{_short(right)}` makes that a success"
        yield FindingCode.FAIL_OPEN, f"`{_short(first)}` {why}"


def _ends(commands: Sequence[Command], i: int) -> bool:
    """Return True if what stands behind ``||`` ends the script, or can fail itself."""
    if "{" not in commands[i].keywords and commands[i].before != "(":
        return commands[i].name not in _SAYS
    for command in commands[i:]:
        if command.depth < commands[i].depth:
            return False
        if command.name in {"exit", "return"}:
            return command.words[1:] != ("0",)
        if command.name in {"false", "die", "fail", "abort"}:
            return True
    return False


# --- what decides that is not in the mod


def _piped(commands: Sequence[Command], i: int) -> _Flaws:
    if commands[i].before != "|" or commands[i].name not in _READERS:
        return
    for before in reversed(commands[max(0, i - _NEAR) : i]):
        if before.name in _FETCHES:
            why = "gets is whatever the server sends at that moment: keep it in the mod"
            yield FindingCode.NETWORK_PATCH, f"what `{commands[i].name}` {why}"
        if before.before != "|":
            return


def _network(commands: Sequence[Command], i: int) -> _Flaws:
    command = commands[i]
    if command.name not in _FETCHES:
        return
    if _PULL.search(command.text):
        why = "the diff of a pull request changes with every push to it: keep a copy in the mod"
        yield FindingCode.LIVE_DIFF, why
    else:
        yield FindingCode.NETWORK, "no network, no mod; and nothing says what the server will send"


# --- what holds here only


def _lost_exports(commands: Sequence[Command], text: str) -> Iterator[Flaw]:
    """Find variables that are exported and not used behind that."""
    last = {match[1]: match.start() for match in re.finditer(r"\$\{?(\w+)", text)}
    at = 0
    for command in commands:
        at = max(at, text.find(command.text, at))
        if command.words[:1] != ("export",):
            continue
        for name in (word.partition("=")[0] for word in command.words[1:] if "=" in word):
            if last.get(name, -1) < at and not PROGRAM_VARIABLES.fullmatch(name):
                why = "vLLM is started by another one. Put it into the recipe's `env`"
                message = f"{name} ends with this process: {why}"
                yield Flaw(FindingCode.LOST_EXPORT, command.line, message)


# --- changes that succeed without changing anything


def _in_place(commands: Sequence[Command], i: int) -> _Flaws:
    command = commands[i]
    edits = command.name in {"sed", "perl"} and _IN_PLACE.search(command.text)
    if edits and not _is_guarded(commands, i):
        why = f"`{command.name}` succeeds also where its pattern matches nothing"
        yield FindingCode.EDIT_UNCHECKED, why


def _is_guarded(commands: Sequence[Command], i: int) -> bool:
    """Return True if a ``grep`` that decides has looked for what a command edits."""
    edits = (re.match(r"s(\W)(.+?)(?<!\\)\1", word) for word in commands[i].words[1:])
    wanted = next((_plain(match[2]) for match in edits if match), "")
    patterns = (
        _plain(word)
        for j in range(max(0, i - _NEAR), i)
        if commands[j].name == "grep" and _decides(commands, j)
        for word in commands[j].words[1:]
        if len(word) > 3 and not word.startswith("-")
    )
    return any(wanted and (pattern in wanted or wanted in pattern) for pattern in patterns)


def _decides(commands: Sequence[Command], i: int) -> bool:
    """Return True if what follows runs only where a command succeeds."""
    command = commands[i]
    if not {"if", "elif"}.isdisjoint(command.keywords):
        return "!" not in command.keywords
    return command.after == "&&" or (command.after == "||" and _ends(commands, i + 1))


def _plain(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern)


def _python_edit(commands: Sequence[Command], i: int) -> _Flaws:
    command = commands[i]
    if command.name != "python3":
        return
    code = f"{command.text}\n{command.document}"
    edits = re.search(r"\.replace\(|re\.sub\(|\.sub\(", code) and re.search(r"write", code)
    if edits and not re.search(r"\b(?:raise|assert|sys\.exit|exit\()", code):
        why = "this Python succeeds also where the text that it replaces is not there"
        yield FindingCode.EDIT_UNCHECKED, why


def _fuzz(commands: Sequence[Command], i: int) -> _Flaws:
    command = commands[i]
    exact = any(re.match(r"--fuzz=0|-F0?$|-\w*F0", word) for word in command.words)
    if command.name == "patch" and not exact:
        why = "leaves out context lines to find a place, and may take another function: `-F0`"
        yield FindingCode.FUZZ, f"`patch` {why}"


# --- small questions


def _changes(command: Command) -> bool:
    """Return True if a command is there to change something, and does not only ask."""
    name, words, text = command.name, command.words, command.text
    if name == "python3":
        return "-c" not in words or "write" in text or "replace" in text
    if name == "git":
        acts = {"apply", "am", "clone", "checkout", "pull"}
        return not acts.isdisjoint(words) and "--check" not in words
    if name == "sed":
        return _IN_PLACE.search(text) is not None
    return name in _CHANGES and "--dry-run" not in words


def _short(command: Command) -> str:
    """Return the first line of a command, without what is redirected behind its words."""
    text = " ".join(re.split(r"\s\d*[<>]|\n", command.text)[0].split())
    return text if len(text) <= 60 else f"{text[:57]}..."
