"""What a check answers: a problem, or a doubt with its reason."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import starmap
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.fit.walk import CodeSite

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LINES = re.compile(r":\d+")


class Problem(NamedTuple):
    """One "no". ``code`` and ``key`` are the same before the patch if it is no news; ``token`` is a word on its line, to search the old file for."""

    code: FindingCode
    path: str
    line: int
    scope: str
    message: str
    key: tuple[str, ...]
    token: str = ""
    level: Level = Level.ERROR


class Misuse(NamedTuple):
    """What is wrong at a site, and a word that stands there."""

    text: str
    token: str
    level: Level = Level.ERROR


Misuses = Iterator[Misuse]


def at_site(path: str, site: CodeSite, code: FindingCode, misuse: Misuse, *key: str) -> Problem:
    """Return the problem of a site; ``key`` tells it from others of its kind."""
    line, scope = site.node.lineno, site.scope.name
    return Problem(code, path, line, scope, misuse.text, key, misuse.token, misuse.level)


class Doubt(NamedTuple):
    """One "can't tell": ``what`` kind of thing in which file, and ``why``."""

    path: str
    what: str
    why: str


Problems = Iterator[Problem]
Answers = Iterator[Problem | Doubt]


def nearest(name: str, names: Iterable[str]) -> str:
    """Name what is there instead, for the end of a message: the same words, or a slip of the keys; ``""`` if nothing is near."""
    own = sorted(other for other in names if not other.startswith("__"))
    words = _words(name)
    alike = (o for o in own if 2 * len(words & _words(o)) >= len(words | _words(o)) > 0)
    near = next(iter(get_close_matches(name, own, n=1, cutoff=0.66) or alike), "")
    return f"; the nearest is {near}" if near else ""


def _words(name: str) -> set[str]:
    """Return the words that a name is made of: ``get_numHeads`` is get, num, heads."""
    return {word.lower() for word in _WORDS.findall(name)}


def lasting(text: str) -> str:
    """Return a text without its line numbers, which a patch moves."""
    return _LINES.sub("", text)


def finding(problem: Problem) -> Finding:
    """Turn a problem into a finding whose message starts with its place."""
    code, path, line, scope, message, *_, level = problem
    return Finding(code, f"{path}:{line}: {message}", path, line, scope=scope, level=level)


def notes(doubts: Iterable[Doubt]) -> Iterator[Finding]:
    """Gather doubts into one note per file, the commonest reasons named."""
    files: dict[str, dict[str, Counter[str]]] = {}
    for doubt in doubts:
        reasons = files.setdefault(doubt.path, {}).setdefault(doubt.what, Counter())
        reasons[doubt.why] += 1
    for path, kinds in sorted(files.items()):
        message = f"{path}: not checked: {'; '.join(starmap(_sum, kinds.items()))}"
        yield Finding(FindingCode.FIT_UNKNOWN, message, path, scope="", level=Level.NOTE)


def _sum(what: str, reasons: Counter[str]) -> str:
    total = reasons.total()
    ranked = sorted(reasons, key=lambda why: (-reasons[why], why))
    rest = f" and {len(ranked) - 2} other reasons" if len(ranked) > 2 else ""
    much = "its syntax" if what == "syntax" else f"{total} {what}{'s' * (total != 1)}"
    return f"{much} ({', '.join(ranked[:2])}{rest})"
