"""What the type checker says after a patch and did not say before, and what of it counts.

Place beats rule: what is new outside the lines that the patch adds is the patch's doing, and a breaking rule needs no more.
On the added lines the checker may only know less than who wrote them: ``gates`` says of each rule what has to be sure.
What it does not say of these lines where the patch was written is the doing of this tree, and needs no such proof.
"""

import ast
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange
from vllm_mods.fit.asked import named_member
from vllm_mods.fit.bodies import scope_at
from vllm_mods.fit.checker import Diagnostic, check, replaced
from vllm_mods.fit.gates import RULES, judge
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.overlay import load_python
from vllm_mods.fit.problems import Answers, Doubt, Problem
from vllm_mods.fit.signatures import every
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree

# Of more files that use what a patch changes, the first are asked: nothing of vLLM is used by as many and changed as a rule.
MOST_USERS = 200
_WORD = re.compile(r"\w+")
_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


class Question(NamedTuple):
    """What the checker is asked: the two states of a tree, the changed files, and those that use what is changed, by its names."""

    before: World
    after: World
    changes: tuple[FileChange, ...]
    users: tuple[str, ...]
    names: frozenset[str]


def type_problems(question: Question, at_origin: Question | None) -> Answers:
    """Yield what is new and counts, or may, and what the checker could not read; ``at_origin`` is where it was written. Raises as ``check``."""
    new = _news(question)
    added = {c.path: added_lines(c.before, c.after) for c in question.changes if c.after}
    inside = {one for one in new if one.line in added.get(one.path, ())}
    gated = inside
    if inside and at_origin is not None:
        known = _said_at_origin(at_origin)
        gated = {one for one in inside if known.intersection(_likenesses(one, question.after))}
    for diagnostic in new:
        if diagnostic.rule == "invalid-syntax" and diagnostic in inside:
            # for the oldest Python that the release supports, which need not be the one that runs here
            yield invalid(diagnostic.path, diagnostic.line, diagnostic.text, question.after.python)
        elif diagnostic.rule not in RULES:  # ty reads UTF-8 and nothing else
            yield Doubt(diagnostic.path, "type", diagnostic.text)
        elif problem := judge(question.after, diagnostic, gated=diagnostic in gated):
            yield problem


def _said_at_origin(question: Question) -> frozenset[tuple[str, ...]]:
    """Return the likenesses of what is new where a patch was written, which is asked once for all trees."""
    cache, (lowest, below) = question.after.cache, question.after.tree.layers()
    key = lowest.identity, frozenset(below.items()), question.changes
    if lowest.identity is None or key not in cache.said:
        load_python(lowest)
        news = _news(question)
        cache.said[key] = frozenset(k for one in news for k in _likenesses(one, question.after))
    return cache.said[key]


def _news(question: Question) -> list[Diagnostic]:
    changes = question.changes
    asked = {*(c.path for c in changes if c.after), *question.users[:MOST_USERS]}

    new, old = {c.path: c.after for c in changes}, {c.path: c.before for c in changes}
    now = tuple(_about(said_of(question.after, new, asked), question))
    # Of what nothing is said now, nothing that was said before is asked.
    was = said_of(question.after, old, {one.path for one in now})
    # What it cannot read now it could not read before: that is said all the same.
    unread = [one for one in now if one.rule not in RULES]
    return [*unread, *_without((one for one in now if one.rule in RULES), was, question)]


def said_of(
    world: World, files: Mapping[str, bytes | None], asked: Iterable[str]
) -> list[Diagnostic]:
    """Return what the type checker says of some files of a tree with these in it. Raises as ``check``."""
    plain = {path: data and plain_getattr(data) for path, data in files.items()}
    folder = world.cache.laid_out.show(world.tree, replaced(), plain)
    said = check(folder, asked, RULES, world.python)
    return [one for one in said if one.rule not in RULES or RULES[one.rule].only in one.text]


def _about(diagnostics: Iterable[Diagnostic], question: Question) -> Iterator[Diagnostic]:
    """Leave out what is said in other files than the changed ones of something else than what is changed."""
    changed = {change.path for change in question.changes}
    for diagnostic in diagnostics:
        if diagnostic.path not in changed and diagnostic.rule in RULES:
            row = question.after.row(diagnostic.path, diagnostic.line).decode(errors="replace")
            words = _WORD.findall(f"{diagnostic.text} {row}")
            # of ``self`` no class is named, and it may be one below a changed one
            if question.names.isdisjoint(words) and "Self" not in words:
                continue
        yield diagnostic


def _likenesses(diagnostic: Diagnostic, world: World) -> tuple[tuple[str, ...], ...]:
    """Return two things by which the same complaint is known in another tree: its text, and the line that it is about."""
    about = diagnostic.path, diagnostic.rule
    row = world.row(diagnostic.path, diagnostic.line).decode(errors="replace").strip()
    return (*about, "text", diagnostic.text), (*about, "line", row)


def _without(
    now: Iterable[Diagnostic], was: Iterable[Diagnostic], question: Question
) -> Iterator[Diagnostic]:
    """Leave out what was said before of the same definition, or of another one of the file from which it moved."""
    before, after = question.before, question.after
    new_of: dict[tuple[str, ...], list[Diagnostic]] = defaultdict(list)
    known_of: dict[tuple[str, ...], list[Diagnostic]] = defaultdict(list)
    for grouped, ones in ((known_of, was), (new_of, now)):
        for diagnostic in ones:
            grouped[diagnostic.path, diagnostic.rule, diagnostic.text].append(diagnostic)
    for key, several in new_of.items():
        more = len(several) - len(known_of[key])
        if more <= 0:
            continue
        known = Counter(scope_at(before, one.path, one.line) for one in known_of[key])
        fresh = []
        for diagnostic in several:
            if known[scope := scope_at(after, diagnostic.path, diagnostic.line)]:
                # where a name was not defined before, one more use of it is no news
                known[scope] -= diagnostic.rule != "unresolved-reference"
            else:
                fresh.append(diagnostic)
        yield from fresh[-more:]


_GETATTR = re.compile(rb"""\bgetattr\(.*["'] *\)""")


@lru_cache(maxsize=256)
def plain_getattr(data: bytes) -> bytes:
    """Return a file in which ``getattr(object, "name")`` on one line is ``object.name``, everything in its place."""
    tree = syntax_tree.module(data) if _GETATTR.search(data) else None
    rows = data.splitlines(keepends=True)
    for node in every(tree) if tree else ():
        name = named_member(node)
        if name is None or not isinstance(node, ast.Call) or node.lineno != node.end_lineno:
            continue
        value = node.args[0]
        if isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            row, start, end = rows[node.lineno - 1], node.col_offset, node.end_col_offset or 0
            first, last = value.col_offset, value.end_col_offset or 0
            read = b"." + name.encode()
            inner = row[first:last] + read.ljust(end - 1 - last)
            rows[node.lineno - 1] = row[:start] + b"(".rjust(first - start) + inner + row[end - 1 :]
    return b"".join(rows)


# --- what this interpreter says of the syntax


def syntax_problems(path: str, data: bytes, lowest: tuple[int, int] | None) -> Answers:
    """Compile a file, never run it."""
    wrong = _error(path, data)
    older = lowest is not None and sys.version_info[:2] < lowest
    if isinstance(wrong, RecursionError | MemoryError):
        yield invalid(path, 1, "it is nested too deeply", lowest)
    elif wrong is not None and older:
        yield Doubt(path, "syntax", f"it may need a newer Python than this one ({_HERE})")
    elif wrong is not None:
        why = str(getattr(wrong, "msg", None) or wrong)
        yield invalid(path, getattr(wrong, "lineno", None) or 1, why, lowest)
    elif lowest is None:
        yield Doubt(path, "syntax", "this tree has no metadata that says which Python it needs")


def _error(path: str, data: bytes) -> Exception | None:
    """Return what this interpreter says against a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, path, "exec", dont_inherit=True)
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            return error
    return None


def invalid(path: str, line: int, why: str, lowest: tuple[int, int] | None) -> Problem:
    """Return what is wrong with the syntax of a line; ``lowest`` is the oldest Python that has to take it."""
    which = f" {lowest[0]}.{lowest[1]}" if lowest else ""
    message = f"this is not valid Python{which}: {why}"
    return Problem(FindingCode.FIT_SYNTAX, path, line, "", message, (why,))
