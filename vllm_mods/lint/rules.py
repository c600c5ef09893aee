"""Rules over a mod's ``run.sh``: what fails open, what the network decides, what ends with the process.

A launcher runs the script in a process of its own, in each container, and goes on if it exits with 0.
So whatever fails without ending the script is a mod that is not in, and nobody is told.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.scripts import bash
from vllm_mods.scripts.bash import (
    Assign,
    BashFunction,
    Block,
    Call,
    Chain,
    If,
    Not,
    Other,
    Pipe,
    Test,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.scripts.bash import Script, Statement


class Flaw(NamedTuple):
    """One finding: a stable ``code``, the 1-based line, and what comes of it."""

    code: str
    line: int
    message: str


_CHANGES = {"patch", "git", "cp", "mv", "install", "ln", "sed", "perl", "python", "python3"}
_CHANGES |= {"bash", "sh"}  # another script of the mod
_CHANGES |= {"pip", "pip3", "uv", "rm", "tar", "unzip", "rsync", "curl", "wget", "mkdir", "tee"}
_ASKS = {"grep", "egrep", "fgrep", "diff", "cmp", "test", "[", "sha256sum"}
_SAYS = {"true", ":", "echo", "printf"}
_FETCHES = {"curl", "wget"}
_PACKAGES = re.compile(r"/python3(?:\.\d+)?/(?:dist|site)-packages")
_PATH_LETTERS = f"{string.ascii_letters}{string.digits}_./-"
_DEFAULT = re.compile(r"\$\{\w+:?-[^}]{0,2000}\}")
_PULL = re.compile(r"github\.com/[\w.-]+/[\w.-]+/pull/\d+|patch-diff\.githubusercontent\.com")
_WORD = re.compile(r"[^\s\"']+")
_ADDRESS = re.compile(r"https?://")
_MOVING = re.compile(r"/(?:main|master|HEAD)/|/refs/heads/")
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")
_EXACT = re.compile(r"===?[\w.+!-]+$|@\s*\S+@[0-9a-f]{40}|#sha256=[0-9a-f]{64}|\.whl$")
_LONGEST_PATH = 4096
_TAKES_VALUE = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target"}
_TAKES_VALUE |= {"--prefix", "--root", "--python", "-p", "--platform", "--python-version"}


def check(script: Script) -> tuple[Flaw, ...]:
    """Return what is wrong with a script, by line."""
    found = [*_stops(script), *_lost_exports(script)]
    for one in bash.walk(script.body):
        for rule in _RULES:
            found += rule(one, script)
    return tuple(sorted(dict.fromkeys(found), key=lambda flaw: (flaw.line, flaw.code)))


def name_of(one: Statement) -> str:
    """Return the command that a call runs, without its path; empty if that cannot be told."""
    while isinstance(one, Call) and one.argv:
        word = one.argv[0].value({})
        name = "" if word is None else word.rpartition("/")[2]
        if name not in {"sudo", "env", "command", "exec", "time", "nice"}:
            return re.sub(r"^python3?(\.\d+)?$", "python3", name)
        one = one._replace(argv=one.argv[1:])
    return "[" if isinstance(one, Test) else ""


def words_of(one: Call) -> list[str]:
    """Return a call's words, each as it stands there where it is not known."""
    found = []
    for word in one.argv:
        value = word.value({})
        found.append(word.text if value is None else value)
    return found


# --- does a failure end the script


def _stops(script: Script) -> Iterator[Flaw]:
    """Find a script that goes on whatever fails."""
    flags = _shell_options(script)
    if "e" in flags:
        off = next((one for one in bash.walk(script.body) if _sets(one, "+") >= {"e"}), None)
        if off is not None:
            yield Flaw("set-e-off", off.line, "from here on a command that fails is passed over")
        return
    for one in script.body:
        if isinstance(one, Call | Pipe) and _changes(one):
            yield Flaw(
                "no-set-e",
                one.line,
                f"if `{_short(one)}` fails, the script goes on and may still exit with 0: put `set -euo "
                "pipefail` at the top",
            )
            return


def _shell_options(script: Script) -> set[str]:
    found = set(_letters(script.interpreter.split()[1:], "-"))
    for one in script.body:
        found |= _sets(one, "-")
    return found


def _sets(one: Statement, sign: str) -> set[str]:
    """Return the options that a ``set`` turns on (``-``) or off (``+``)."""
    return (
        set(_letters(words_of(one)[1:], sign))
        if isinstance(one, Call) and name_of(one) == "set"
        else set()
    )


def _letters(words: list[str], sign: str) -> Iterator[str]:
    long = {"errexit": "e", "nounset": "u", "pipefail": "pipefail"}
    named = False
    for word in words:
        if named and word in long:
            yield long[word]
        elif word.startswith(sign):
            yield from word[1:].replace("o", "")
        named = word.startswith(sign) and word.endswith("o")


def _fails_open(one: Statement, _script: Script) -> Iterator[Flaw]:
    """``… || true``: what failed counts as done."""
    if not isinstance(one, Chain) or one.operator != "||" or not _cannot_fail(one.right):
        return
    if _changes(one.left):
        yield Flaw(
            "fail-open",
            one.line,
            f"`{_short(one.left)}` may fail, and `{_short(one.right)}` makes that a success",
        )
    elif _asks(one.left):
        yield Flaw(
            "check-cannot-fail",
            one.line,
            f"whatever `{_short(one.left)}` finds, `{_short(one.right)}` makes it a success",
        )


def _passed_over(one: Statement, _script: Script) -> Iterator[Flaw]:
    """``if patch …; then … fi``: no branch for what happens if it fails, or one that goes on."""
    if not isinstance(one, If):
        return
    condition, _body = one.branches[0]
    tried = [part for part in condition if not isinstance(part, Not) and _changes(part)]
    dry = any("--dry-run" in part.text or "--check" in part.text for part in tried)
    otherwise = one.branches[-1][1] if not one.branches[-1][0] else ()
    if tried and not dry and not _ends(otherwise):
        yield Flaw(
            "failure-passed-over",
            one.line,
            f"if `{_short(tried[0])}` fails, the script goes on: nothing in the other branch ends it",
        )


def _unwatched_pipe(one: Statement, script: Script) -> Iterator[Flaw]:
    """``patch … | tee log``: the exit code is that of the last command."""
    if not isinstance(one, Pipe) or "pipefail" in _shell_options(script):
        return
    early = [stage for stage in one.stages[:-1] if _changes(stage)]
    if early:
        yield Flaw(
            "pipe-unwatched",
            one.line,
            f"if `{_short(early[0])}` fails, the pipe still succeeds when its last command does: "
            "`set -o pipefail`",
        )


def _background(one: Statement, _script: Script) -> Iterator[Flaw]:
    if (
        isinstance(one, Other)
        and one.kind == "background"
        and any(map(_changes, bash.walk(one.body)))
    ):
        yield Flaw(
            "background", one.line, f"nobody waits for `{_short(one)}`, or hears that it failed"
        )


# --- what decides that is not in the mod


def _network(one: Statement, script: Script) -> Iterator[Flaw]:
    if isinstance(one, Pipe) and any(name_of(stage) in _FETCHES for stage in one.stages[:-1]):
        last = one.stages[-1]
        if name_of(last) in {"patch", "git", "bash", "sh", "python3"}:
            yield Flaw(
                "network-patch",
                one.line,
                f"what `{name_of(last)}` gets is whatever the server sends at that moment: keep it in "
                "the mod",
            )
    if not isinstance(one, Call):
        return
    name, words = name_of(one), words_of(one)
    if name in _FETCHES:
        yield from _fetch(one)
    if (
        name == "git"
        and "clone" in words[1:3]
        and not any(_COMMIT.search(other.text) for other in script.body)
    ):
        yield Flaw(
            "moving-clone", one.line, "a branch of another repository: what is in it changes"
        )


def _fetch(one: Call) -> Iterator[Flaw]:
    if _PULL.search(one.text):
        yield Flaw(
            "live-diff",
            one.line,
            "the diff of a pull request changes with every push to it: keep a copy in the mod",
        )
    elif any(_moves(word) for word in _WORD.findall(one.text)):
        yield Flaw("moving-url", one.line, "this address names a branch: what it gives changes")
    else:
        yield Flaw(
            "network", one.line, "no network, no mod; and nothing says what the server will send"
        )


def _unpinned(one: Statement, _script: Script) -> Iterator[Flaw]:
    if not isinstance(one, Call):
        return
    words = words_of(one)
    if "install" not in words or not _is_pip(words[: words.index("install")]):
        return
    rest = words[words.index("install") + 1 :]
    if "--require-hashes" in rest:
        return
    loose = []
    while rest:
        word = rest.pop(0)
        if word in {"-r", "--requirement", "-c", "--constraint"}:
            loose.append(f"{word} {rest.pop(0) if rest else ''}".strip())
        elif word in _TAKES_VALUE:
            del rest[:1]
        elif not word.startswith("-") and not _EXACT.search(word):
            loose.append(word)
    if loose:
        yield Flaw(
            "unpinned-install",
            one.line,
            f"which {', '.join(loose)} comes in depends on the day: name the version (`==`) or a wheel",
        )


def _is_pip(words: list[str]) -> bool:
    return any(word.rpartition("/")[2] in {"pip", "pip3", "uv"} for word in words)


# --- what holds here only


def _hard_coded(one: Statement, _script: Script) -> Iterator[Flaw]:
    if not isinstance(one, Call | Assign | Test):
        return
    redirects = one.redirects if isinstance(one, Call) else ()
    places = [redirect.target.text for redirect in redirects if redirect.operator != "<<"]
    if root := _root_in(_DEFAULT.sub("", "\n".join([one.text, *places]))):
        yield Flaw(
            "hard-coded-root",
            one.line,
            f"{root} is where vLLM lies in some images: take it from a variable, or ask Python",
        )


def _root_in(text: str) -> str:
    """Return the first absolute path to a site root in a text; empty without one."""
    for match in _PACKAGES.finditer(text):
        before = text[: match.start()][-_LONGEST_PATH:]
        path = before[len(before.rstrip(_PATH_LETTERS)) :]
        if "/" in path:
            return path[path.index("/") :] + match[0]
    return ""


def _moves(word: str) -> bool:
    """Tell whether a word has the address of a branch in it."""
    address = _ADDRESS.search(word)
    return address is not None and _MOVING.search(word, address.end()) is not None


def _lost_exports(script: Script) -> Iterator[Flaw]:
    last: dict[str, int] = {}
    exports = []
    for one in bash.walk(script.body):
        for name in re.findall(r"\$\{?(\w+)", one.text):
            last[name] = max(one.line, last.get(name, 0))
        if isinstance(one, Assign) and one.exported:
            exports.append(one)
    for one in exports:
        used = last.get(one.name, 0) > one.line
        if not used and one.name not in {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH"}:
            yield Flaw(
                "lost-export",
                one.line,
                f"{one.name} ends with this process: vLLM is started by another one. Put it into the "
                "recipe's `env`",
            )


# --- changes that succeed without changing anything


def _in_place(one: Statement, _script: Script) -> Iterator[Flaw]:
    if (
        isinstance(one, Call)
        and name_of(one) in {"sed", "perl"}
        and re.search(r"\s-\w*i|--in-place", one.text)
    ):
        yield Flaw(
            "edit-unchecked",
            one.line,
            f"`{name_of(one)}` succeeds also where its pattern matches nothing",
        )


def _python_edit(one: Statement, _script: Script) -> Iterator[Flaw]:
    if not isinstance(one, Call) or name_of(one) != "python3":
        return
    code = "\n".join(
        [*(redirect.target.text for redirect in one.redirects), *(word.text for word in one.argv)]
    )
    edits = re.search(r"\.replace\(|re\.sub\(|\.sub\(", code) and re.search(r"write", code)
    if edits and not re.search(r"\b(?:raise|assert|sys\.exit|exit\()", code):
        yield Flaw(
            "edit-unchecked",
            one.line,
            "this Python succeeds also where the text that it replaces is not there",
        )


def _fuzz(one: Statement, _script: Script) -> Iterator[Flaw]:
    if not isinstance(one, Call):
        return
    name, words = name_of(one), words_of(one)
    if name == "patch" and not any(re.match(r"--fuzz=0|-F0?$|-\w*F0", word) for word in words):
        yield Flaw(
            "fuzz",
            one.line,
            "`patch` leaves out context lines to find a place, and may take another function: `-F0`",
        )
    if name == "git" and "apply" in words and "--reject" in words:
        yield Flaw(
            "half-applied", one.line, "`--reject` puts in the hunks that fit and leaves the rest"
        )


_RULES = (
    _fails_open,
    _passed_over,
    _unwatched_pipe,
    _background,
    _network,
    _unpinned,
    _hard_coded,
    _in_place,
    _python_edit,
    _fuzz,
)


# --- small questions


def _changes(one: Statement) -> bool:
    """Tell whether a statement is there to change something."""
    if isinstance(one, BashFunction):
        return False
    return any(
        name_of(part) in _CHANGES and not _only_asks(part)
        for part in (one, *bash.walk(bash.inside(one)))
    )


def _only_asks(one: Statement) -> bool:
    if not isinstance(one, Call):
        return False
    if name_of(one) == "python3":
        return "-c" in words_of(one) and "write" not in one.text and "replace" not in one.text
    if name_of(one) == "git":
        return not {"apply", "am", "clone", "checkout", "pull"} & set(
            words_of(one)
        ) or "--check" in words_of(one)
    if name_of(one) == "sed":
        return not re.search(r"\s-\w*i|--in-place", one.text)
    return "--dry-run" in words_of(one)


def _asks(one: Statement) -> bool:
    return any(
        name_of(part) in _ASKS or _only_asks(part) for part in (one, *bash.walk(bash.inside(one)))
    )


def _cannot_fail(one: Statement) -> bool:
    if isinstance(one, Block):
        return not _ends(one.body)
    return name_of(one) in _SAYS


def _ends(body: tuple[Statement, ...]) -> bool:
    """Tell whether statements end the script, and not with 0."""
    for one in bash.walk(body):
        if isinstance(one, Call) and name_of(one) in {"exit", "return"}:
            return words_of(one)[1:] != ["0"]
        if isinstance(one, Call) and name_of(one) in {"false", "die", "fail", "abort"}:
            return True
    return False


def _short(one: Statement) -> str:
    text = " ".join(one.text.split("\n")[0].split())
    return text if len(text) <= 60 else f"{text[:57]}..."
