"""The words of a script as they are when a launcher runs it, and what tests of them come to; None for what only a run would tell."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence

from vllm_mods.base import limits
from vllm_mods.making.effects import HOME, normal
from vllm_mods.making.shell_state import ShellState
from vllm_mods.scripts import bash
from vllm_mods.scripts.statements import BashError, Call, Unread, Variable, Word

_MAGIC = re.compile(r"[*?\[]")
_BRACES = re.compile(r"(?<![$\\])\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|\$\{[^{}]*\}|\$\([^()]*\)")
_CUT = re.compile(r"\$\{(\w+)(%%?|##?)([^}]*)\}")
_SURE = re.compile(r"\$\{(\w+):?[?=][^}]*\}")
_ALL = re.compile(r"\$\{(\w+)\[[@*]\]\}")
_SCRIPT = {"$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE}", "${BASH_SOURCE[0]}"}


def value(shell: ShellState, word: Word) -> str | None:
    """Return what a word comes to where one word is wanted."""
    found = values(shell, word)
    return found[0] if found is not None and len(found) == 1 else None


def values(shell: ShellState, word: Word) -> list[str] | None:
    """Return the words that a word becomes: several for a pattern, an array, an unquoted list."""
    quoted = word.text[:1] in {'"', "'"}
    if _BRACES.search(_QUOTED.sub("", word.text)):
        return None
    if len(word.parts) == 1 and isinstance(word.parts[0], Unread):
        many = _many(shell, word.parts[0].text)
        if many is not None:
            return many
    text, pattern = "", ""
    for part in word.parts:
        if isinstance(part, Unread) and not part.text.startswith(("$", "`", "(", "<(", ">(")):
            piece = part.text
            piece = HOME + piece[1:] if piece == "~" or piece.startswith("~/") else piece
            text += piece
            pattern += piece
            continue
        known = part if isinstance(part, str) else _part(shell, part)
        if known is None:
            return None
        text += known
        pattern += re.sub(r"([*?\[])", r"[\1]", known)
    if _MAGIC.search(re.sub(r"\[[*?\[]\]", "", pattern)):
        # a wildcard for the interpreter's version means the one that vLLM lies in
        plain = normal(pattern)
        return _matches(shell, plain) if _MAGIC.search(plain) else [plain]
    split = not quoted and any(isinstance(part, Variable) for part in word.parts)
    return text.split() if split else [text]


def text(shell: ShellState, word: Word) -> str | None:
    """Return what a word comes to where nothing is split: a value, a here-document."""
    out = ""
    for part in word.parts:
        known = part if isinstance(part, str) else _part(shell, part)
        if known is None:
            return None
        out += known
        if len(out) > limits.VARIABLE:
            return None  # a variable made of itself, over and over
    return out


def array(shell: ShellState, word: Word) -> list[str] | None:
    """Return the items of ``(a b c)``; None if that is not what the word is."""
    if not (word.text.startswith("(") and word.text.endswith(")")):
        return None
    (call,) = bash.read(f"x {word.text[1:-1].replace(chr(10), ' ')}").body
    if not isinstance(call, Call):
        return None
    found: list[str] = []
    for one in call.argv[1:]:
        items = values(shell, one)
        if items is None:
            return None
        found += items
    return found


def _many(shell: ShellState, raw: str) -> list[str] | None:
    match = _ALL.fullmatch(raw)
    if match:
        return shell.arrays.get(match[1])
    return list(shell.arguments) if raw in {"$@", "$*"} else None


def _part(shell: ShellState, part: Variable | Unread) -> str | None:  # noqa: PLR0911  (one for each form)
    if isinstance(part, Variable):
        return _variable(shell, part)
    raw = part.text
    if raw in _SCRIPT:
        return shell.script
    if raw.startswith(("$((", "<(", ">(")):
        return None
    if raw.startswith(("$(", "`")):
        inner = raw[2:-1] if raw.startswith("$(") else raw[1:-1].replace("\\`", "`")
        return shell.substitute(inner)
    if raw in {"$*", "$@"}:
        return " ".join(shell.arguments)
    if raw == "$#":
        return str(len(shell.arguments))
    if match := _SURE.fullmatch(raw):
        return shell.variables.get(match[1])
    if match := _CUT.fullmatch(raw):
        known = shell.variables.get(match[1])
        return None if known is None else _cut(known, match[2], match[3])
    return raw if raw == "~" or not raw.startswith("$") else None


def _variable(shell: ShellState, part: Variable) -> str | None:
    name = part.name
    if name == "PWD":
        return shell.cwd
    if name == "BASH_SOURCE" or (name.isdigit() and int(name) == 0):
        return shell.script
    if name.isdigit():
        at = int(name) - 1
        found = shell.arguments[at] if at < len(shell.arguments) else ""
    elif name in shell.variables:
        known = shell.variables[name]
        if known is None:
            return None
        found = known
    else:
        if part.default is None:
            return None
        shell.unset(name)
        return text(shell, part.default)
    return text(shell, part.default) if not found and part.default is not None else found


def _cut(known: str, operator: str, pattern: str) -> str:
    """Cut what matches off the end (``%``) or the start (``#``): the least, or doubled the most."""
    sizes = range(len(known) + 1)
    longest = len(operator) == 2
    if operator[0] == "%":
        cuts = [at for at in sizes if fnmatch.fnmatchcase(known[at:], pattern)]
        return known[: min(cuts) if longest else max(cuts)] if cuts else known
    cuts = [at for at in sizes if fnmatch.fnmatchcase(known[:at], pattern)]
    return known[max(cuts) if longest else min(cuts) :] if cuts else known


def _matches(shell: ShellState, pattern: str) -> list[str] | None:
    """Return the paths that a pattern names, as bash sorts them, or the pattern if there is none."""
    place = shell.path(pattern)
    known = None if place is None else shell.listing(place)
    if place is None or known is None:
        return None
    wanted = place.split("/")
    found = sorted(path for path in known if _fits(path.split("/"), wanted))
    if not pattern.startswith("/") and shell.cwd is not None:
        start = "./" if pattern.startswith("./") else ""
        found = [start + posixpath.relpath(path, shell.cwd) for path in found]
    return found or [pattern]


def _fits(path: list[str], wanted: list[str]) -> bool:
    pairs = zip(path, wanted, strict=False)
    return len(path) == len(wanted) and all(
        fnmatch.fnmatchcase(one, part) and not (one.startswith(".") and part[:1] in "*?[")
        for one, part in pairs
    )


def test(shell: ShellState, whole: str) -> bool | None:
    """Tell what the text of ``[ … ]`` or ``[[ … ]]`` comes to."""
    inner = re.sub(r"^\[\[?\s|\s\]\]?$", "", whole)
    try:
        (call,) = bash.read(f"test {inner}").body
    except (BashError, ValueError):
        return None
    if not isinstance(call, Call) or call.redirects:
        return None
    found: list[str] = []
    for word in call.argv[1:]:
        patterns = (part.text for part in word.parts if isinstance(part, Unread))
        if not all(one.startswith(("$", "`")) for one in patterns):
            return None
        if whole.startswith("[["):
            known = text(shell, word)
            items = None if known is None else [known]
        else:
            items = values(shell, word)  # what is not quoted is split, or is nothing at all
        if items is None:
            return None
        found += items
    return evaluate(shell, found)


def evaluate(shell: ShellState, argv: Sequence[str]) -> bool | None:  # noqa: PLR0911  (one for each form)
    """Tell what the words of a test come to."""
    if argv and argv[0] == "!":
        inner = evaluate(shell, argv[1:])
        return None if inner is None else not inner
    if len(argv) == 1:
        return bool(argv[0])
    if len(argv) == 3 and argv[1] in {"=", "==", "!="}:
        same = argv[0] == argv[2]
        return same if argv[1] != "!=" else not same
    if len(argv) != 2:
        return None
    flag, name = argv
    if flag in {"-n", "-z"}:
        return bool(name) is (flag == "-n")
    path = shell.path(name) if name else None
    if path is None:
        return None
    if flag in {"-f", "-s", "-r"}:
        return shell.is_file(path)
    if flag == "-d":
        return shell.is_folder(path)
    if flag == "-e":
        is_file, is_folder = shell.is_file(path), shell.is_folder(path)
        return True if is_file or is_folder else (None if None in {is_file, is_folder} else False)
    return None
