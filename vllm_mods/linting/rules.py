"""Rules over a mod's ``run.sh``: what fails open, what the network decides, what ends with the process.

A launcher runs the script in a process of its own, in each container, and goes on if it exits with 0.
So whatever fails without ending the script is a mod that is not in, and nobody is told. Each rule is
here for mods that were found to fail so.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.scripts import statements
from vllm_mods.scripts.statements import (
    Assign,
    BashFunction,
    Block,
    Call,
    Chain,
    If,
    Not,
    Pipe,
    Script,
    Statement,
    Test,
)

_Flaws = Iterator[tuple[FindingCode, str]]


class Flaw(NamedTuple):
    """One finding: a stable ``code``, the 1-based line, and what comes of it."""

    code: FindingCode
    line: int
    message: str


_CHANGES = {"patch", "git", "cp", "mv", "install", "ln", "sed", "perl", "python", "python3"}
_CHANGES |= {"bash", "sh"}  # another script of the mod
_CHANGES |= {"pip", "pip3", "uv", "rm", "tar", "unzip", "rsync", "curl", "wget", "mkdir", "tee"}
_SAYS = {"true", ":", "echo", "printf"}
_FETCHES = {"curl", "wget"}
_PACKAGES = re.compile(r"/python3(?:\.\d+)?/(?:dist|site)-packages")
_PATH_LETTERS = f"{string.ascii_letters}{string.digits}_./-"
_DEFAULT = re.compile(r"\$\{\w+:?-[^}]{0,2000}\}")
_PULL = re.compile(r"github\.com/[\w.-]+/[\w.-]+/pull/\d+|patch-diff\.githubusercontent\.com")
_WORD = re.compile(r"[^\s\"']+")
_EXACT = re.compile(r"===?[\w.+!-]+$|@\s*\S+@[0-9a-f]{40}|#sha256=[0-9a-f]{64}|\.whl$")
_IN_PLACE = re.compile(r"\s-\w*i|--in-place")
_LONGEST_PATH = 4096
_TAKES_VALUE = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target"}
_TAKES_VALUE |= {"--prefix", "--root", "--python", "-p", "--platform", "--python-version"}


def check(script: Script) -> tuple[Flaw, ...]:
    """Return what is wrong with a script, by line."""
    found = [*_goes_on(script), *_lost_exports(script)]
    for statement in statements.walk(script.body):
        for rule in _RULES.get(type(statement), ()):
            found += (
                Flaw(code, statement.line, message) for code, message in rule(statement, script)
            )
    return tuple(sorted(dict.fromkeys(found), key=lambda flaw: (flaw.line, flaw.code)))


def check_run(script: Script) -> tuple[Flaw, ...]:
    """Return what is wrong with a ``RUN``: it is built into one image, and fails with its last command."""
    elsewhere = {"hard-coded-root", "network", "no-set-e"}
    flaws = [flaw for flaw in check(script) if flaw.code not in elsewhere]
    flaws += _goes_on(script._replace(body=script.body[:-1]))
    return tuple(
        flaw._replace(message=flaw.message.replace("the recipe's `env`", "`ENV`")) for flaw in flaws
    )


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
    known = ((word, word.value({})) for word in one.argv)
    return [word.text if value is None else value for word, value in known]


# --- does a failure end the script


def _goes_on(script: Script) -> Iterator[Flaw]:
    """Find the first change of a script that goes on whatever fails."""
    if "e" in _shell_options(script):
        return
    for statement in script.body:
        if isinstance(statement, Call | Pipe) and _changes(statement):
            why = "the script goes on and may still exit with 0: put `set -euo pipefail` at the top"
            yield Flaw(
                FindingCode.NO_SET_E, statement.line, f"if `{_short(statement)}` fails, {why}"
            )
            return


def _shell_options(script: Script) -> set[str]:
    """Return the options that the first line or a ``set`` turns on."""
    words = script.interpreter.split()[1:]
    for statement in script.body:
        if isinstance(statement, Call) and name_of(statement) == "set":
            words += words_of(statement)[1:]
    return set(_letters(words))


def _letters(words: list[str]) -> Iterator[str]:
    named = False
    for word in words:
        if named and word == "errexit":
            yield "e"
        elif word.startswith("-"):
            yield from word[1:]
        named = word.startswith("-") and word.endswith("o")


def _fails_open(chain: Chain, _script: Script) -> _Flaws:
    """``… || true``: what failed counts as done."""
    if chain.operator == "||" and _cannot_fail(chain.right) and _changes(chain.left):
        left, right = _short(chain.left), _short(chain.right)
        yield FindingCode.FAIL_OPEN, f"`{left}` may fail, and `{right}` makes that a success"


# --- what decides that is not in the mod


def _piped_from_network(pipe: Pipe, _script: Script) -> _Flaws:
    last = name_of(pipe.stages[-1])
    fetched = any(name_of(stage) in _FETCHES for stage in pipe.stages[:-1])
    if fetched and last in {"patch", "git", "bash", "sh", "python3"}:
        why = "gets is whatever the server sends at that moment: keep it in the mod"
        yield FindingCode.NETWORK_PATCH, f"what `{last}` {why}"


def _network(call: Call, _script: Script) -> _Flaws:
    if name_of(call) not in _FETCHES:
        return
    if _PULL.search(call.text):
        why = "the diff of a pull request changes with every push to it: keep a copy in the mod"
        yield FindingCode.LIVE_DIFF, why
    else:
        yield FindingCode.NETWORK, "no network, no mod; and nothing says what the server will send"


def _unpinned(one: Call, _script: Script) -> _Flaws:
    words = words_of(one)
    at = words.index("install") if "install" in words else 0
    program, rest = words[:at], words[at + 1 :]
    is_pip = any(word.rpartition("/")[2] in {"pip", "pip3", "uv"} for word in program)
    if not is_pip or "--require-hashes" in rest:
        return
    loose = []
    while rest:
        word = rest.pop(0)
        if word in {"-c", "--constraint"}:
            del rest[:1]  # it installs nothing
        elif word in {"-r", "--requirement"}:
            loose.append(f"{word} {rest.pop(0) if rest else ''}".strip())
        elif word in _TAKES_VALUE:
            del rest[:1]
        elif not word.startswith("-") and not _EXACT.search(word):
            loose.append(word)
    if loose:
        why = "comes in depends on the day: name the version (`==`) or a wheel"
        yield FindingCode.UNPINNED_INSTALL, f"which {', '.join(loose)} {why}"


# --- what holds here only


def _hard_coded(one: Call | Assign | Test, _script: Script) -> _Flaws:
    redirects = one.redirects if isinstance(one, Call) else ()
    places = [redirect.target.text for redirect in redirects if redirect.operator != "<<"]
    if root := _root_in(_DEFAULT.sub("", "\n".join([one.text, *places]))):
        why = "is where vLLM lies in some images: take it from a variable, or ask Python"
        yield FindingCode.HARD_CODED_ROOT, f"{root} {why}"


def _root_in(text: str) -> str:
    """Return the first absolute path to a site root in a text; empty without one."""
    for match in _PACKAGES.finditer(text):
        before = text[: match.start()][-_LONGEST_PATH:]
        path = before[len(before.rstrip(_PATH_LETTERS)) :]
        if "/" in path:
            return path[path.index("/") :] + match[0]
    return ""


def _lost_exports(script: Script) -> Iterator[Flaw]:
    last: dict[str, int] = {}
    exports = []
    for one in statements.walk(script.body):
        for name in re.findall(r"\$\{?(\w+)", one.text):
            last[name] = max(one.line, last.get(name, 0))
        if isinstance(one, Assign) and one.exported:
            exports.append(one)
    for one in exports:
        used = last.get(one.name, 0) > one.line
        if not used and not statements.OWN.fullmatch(one.name):
            why = "vLLM is started by another one. Put it into the recipe's `env`"
            yield Flaw(
                FindingCode.LOST_EXPORT, one.line, f"{one.name} ends with this process: {why}"
            )


# --- changes that succeed without changing anything


def _in_place(one: Call, script: Script) -> _Flaws:
    name = name_of(one)
    if name in {"sed", "perl"} and _IN_PLACE.search(one.text) and not _guarded(one, script):
        yield (
            FindingCode.EDIT_UNCHECKED,
            f"`{name}` succeeds also where its pattern matches nothing",
        )


def _guarded(one: Call, script: Script) -> bool:
    """Tell whether a ``grep`` that it depends on has looked for what it edits."""
    edits = (re.match(r"s(\W)(.+?)(?<!\\)\1", word) for word in words_of(one)[1:])
    wanted = next((re.sub(r"\\(.)", r"\1", match[2]) for match in edits if match), "")
    for other in statements.walk(script.body):
        asked: tuple[Statement, ...] = ()
        if isinstance(other, If):
            asked = tuple(
                part
                for condition, body in other.branches
                for part in condition
                if one in statements.walk(body) and not isinstance(part, Not)
            )
        elif isinstance(other, Chain) and one in statements.walk((other.right,)):
            asked = (other.left,) if other.operator == "&&" else ()
        elif isinstance(other, Chain) and other.operator == "||" and other.line < one.line:
            asked = (other.left,) if _ends((other.right,)) else ()
        for part in statements.walk(asked):
            words = words_of(part)[1:] if isinstance(part, Call) and name_of(part) == "grep" else []
            found = (re.sub(r"\\(.)", r"\1", word) for word in words if not word.startswith("-"))
            if wanted and any(word in wanted or wanted in word for word in found if len(word) > 3):
                return True
    return False


def _python_edit(one: Call, _script: Script) -> _Flaws:
    if name_of(one) != "python3":
        return
    words = (*(redirect.target for redirect in one.redirects), *one.argv)
    code = "\n".join(word.text for word in words)
    edits = re.search(r"\.replace\(|re\.sub\(|\.sub\(", code) and re.search(r"write", code)
    if edits and not re.search(r"\b(?:raise|assert|sys\.exit|exit\()", code):
        why = "this Python succeeds also where the text that it replaces is not there"
        yield FindingCode.EDIT_UNCHECKED, why


def _fuzz(one: Call, _script: Script) -> _Flaws:
    given = any(re.match(r"--fuzz=0|-F0?$|-\w*F0", word) for word in words_of(one))
    if name_of(one) == "patch" and not given:
        why = "leaves out context lines to find a place, and may take another function: `-F0`"
        yield FindingCode.FUZZ, f"`patch` {why}"


_RULES: dict[type[Statement], tuple[Callable[[Any, Script], _Flaws], ...]] = {
    Call: (_network, _unpinned, _hard_coded, _in_place, _python_edit, _fuzz),
    Assign: (_hard_coded,),
    Test: (_hard_coded,),
    Chain: (_fails_open,),
    Pipe: (_piped_from_network,),
}


# --- small questions


def _changes(one: Statement) -> bool:
    """Tell whether a statement is there to change something."""
    if isinstance(one, BashFunction):
        return False
    return any(
        name_of(part) in _CHANGES and not _only_asks(part) for part in statements.walk((one,))
    )


def _only_asks(one: Statement) -> bool:
    if not isinstance(one, Call):
        return False
    if name_of(one) == "python3":
        return "-c" in words_of(one) and "write" not in one.text and "replace" not in one.text
    if name_of(one) == "git":
        acts = {"apply", "am", "clone", "checkout", "pull"}
        return acts.isdisjoint(words_of(one)) or "--check" in words_of(one)
    if name_of(one) == "sed":
        return not _IN_PLACE.search(one.text)
    return "--dry-run" in words_of(one)


def _cannot_fail(one: Statement) -> bool:
    return not _ends(one.body) if isinstance(one, Block) else name_of(one) in _SAYS


def _ends(body: tuple[Statement, ...]) -> bool:
    """Tell whether statements end the script, and not with 0."""
    for one in statements.walk(body):
        if isinstance(one, Call) and name_of(one) in {"exit", "return"}:
            return words_of(one)[1:] != ["0"]
        if isinstance(one, Call) and name_of(one) in {"false", "die", "fail", "abort"}:
            return True
    return False


def _short(one: Statement) -> str:
    text = " ".join(one.text.split("\n")[0].split())
    return text if len(text) <= 60 else f"{text[:57]}..."
