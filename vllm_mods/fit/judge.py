"""The checks, in order, over the files that a patch changes and those it reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Expectation, FileChange, Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.fit.attributes import attribute_problems
from vllm_mods.fit.calls import call_problems, value_problems
from vllm_mods.fit.cycles import cycle_problems
from vllm_mods.fit.dead import dead_problems
from vllm_mods.fit.duplicates import duplicate_problems
from vllm_mods.fit.expectations import expectation_problems
from vllm_mods.fit.flow import flow_problems
from vllm_mods.fit.imports import import_problems
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.kinds import kind_problems
from vllm_mods.fit.lines import added_lines, touched_lines
from vllm_mods.fit.names import name_problems
from vllm_mods.fit.overrides import Override, changed_methods, override_problems, overrides_of
from vllm_mods.fit.problems import Doubt, Problem, finding, notes
from vllm_mods.fit.run_time import may_rest_on_writes, run_time_writes
from vllm_mods.fit.search import candidates, classes_in, subclasses
from vllm_mods.fit.strings import string_problems
from vllm_mods.fit.syntax import lowest_python, syntax_problems
from vllm_mods.fit.traces import Trace, mentions, traces
from vllm_mods.fit.walk import CodeSite, walk
from vllm_mods.fit.world import SummaryCache, World
from vllm_mods.formats import syntax_tree

_IGNORED = re.compile(rb"#\s*(?:type|ty|mypy|pyright):\s*ignore\b")


class Judgement(NamedTuple):
    """The problems, then a note for each file of what cannot be told.

    ``consulted`` are the paths of the files that these rest on, ``untyped`` says why no type checker was asked (``""`` if one
    was), ``partly`` that what the patch takes away may have users that nobody looked for.
    """

    findings: tuple[Finding, ...]
    consulted: frozenset[str]
    untyped: str
    partly: bool


def judge(
    changes: tuple[FileChange, ...],
    tree: Tree,
    expects: tuple[Expectation, ...],
    cache: SummaryCache,
    origin: Tree | None = None,
) -> Judgement:
    """Run every check. ``origin`` is the release that the patch was written for, where it can be had."""
    texts: dict[str, bytes | None] = {}
    before = World(tree, {change.path: change.before for change in changes}, cache, texts)
    after = World(tree, {change.path: change.after for change in changes}, cache, texts)
    written = None if origin is None else World(origin, {}, cache)
    answers: list[Problem | Doubt] = [*expectation_problems(before, expects)]
    lowest = lowest_python(tree) if changes else None
    sound: dict[str, bytes] = {}
    for change in changes:
        if change.after is None:
            continue
        syntax = list(syntax_problems(change.path, change.before, change.after, lowest))
        answers += syntax
        if not any(isinstance(answer, Problem) for answer in syntax):
            sound[change.path] = change.after
    gone = _gone(before, after, changes, sound)
    reached = _reached(after, changes, sound, gone)
    for path, lines in reached.items():
        answers.extend(_file(before, after, path, lines, sound.get(path)))
    for path, data in sound.items():
        answers.extend(_overrides(before, after, path))
        answers.extend(dead_problems(before, after, path, expects, written))
        added = added_lines(before.read(path), data)
        answers.extend(cycle_problems(before, after, path, added))
    judged = tuple(c for c in changes if c.path in sound or not c.after)
    opinion, untyped = _opinion(judged, before, lowest)
    met = {(answer.path, answer.line) for answer in answers if isinstance(answer, Problem)}
    answers.extend(one for one in opinion if (one.path, one.line) not in met)
    problems = [_honour(after, problem) for problem in _distinct(answers)]
    if any(map(may_rest_on_writes, problems)):
        writes = run_time_writes(_added_code(before, after, sound))
        problems = [writes.soften(problem) for problem in problems]
    doubts = [answer for answer in answers if isinstance(answer, Doubt)]
    if untyped.startswith("ty failed"):
        doubts.append(Doubt(next(iter(sound), ""), "type", untyped))
    partly = bool(gone) and not candidates(before, tuple(sound))[1]
    if partly:
        why = "of this remote tree only some files were searched for uses of what the patch changes"
        doubts.append(Doubt(next(iter(sound), ""), "use", why))
    findings = (*(finding(problem) for problem in problems), *notes(doubts))
    return Judgement(findings, frozenset(before.consulted | after.consulted), untyped, partly)


def _distinct(answers: list[Problem | Doubt]) -> tuple[Problem, ...]:
    """Leave one answer per problem: an override is met from both its ends."""
    distinct: dict[tuple[object, ...], Problem] = {}
    for answer in answers:
        if isinstance(answer, Problem):
            place = () if answer.code == FindingCode.FIT_OVERRIDE else (answer.path, answer.line)
            distinct.setdefault((answer.code, *answer.key, *place), answer)
    return tuple(distinct.values())


def _opinion(
    changes: tuple[FileChange, ...], before: World, lowest: tuple[int, int] | None
) -> tuple[tuple[Problem, ...], str]:
    """Ask a type checker where there is one; else say why none was asked."""
    if before.tree.remote:
        return (), "the tree is remote"
    if not changes or find_spec("ty") is None:
        return (), "vllm-mods[types] is not installed"
    from vllm_mods.fit.types import second_opinion  # noqa: PLC0415  (tempfile and more: 40 ms)

    paths = sorted(path for path in before.paths() if path.endswith(".py"))
    return second_opinion(changes, {path: before.glance(path) or b"" for path in paths}, lowest)


def _honour(after: World, problem: Problem) -> Problem:
    """Make a note of what the author has told a type checker to let be."""
    rows = (after.glance(problem.path) or b"").splitlines()
    row = rows[problem.line - 1] if 0 < problem.line <= len(rows) else b""
    if (
        problem.level is Level.NOTE
        or problem.code == FindingCode.FIT_SYNTAX
        or not _IGNORED.search(row)
    ):
        return problem
    message = f"{problem.message} (its line says `type: ignore`)"
    return problem._replace(level=Level.NOTE, message=message)


def _added_code(
    before: World, after: World, sound: dict[str, bytes]
) -> Iterator[tuple[Inference, Iterator[CodeSite]]]:
    """Yield the code that the changes add, file by file."""
    for path, data in sound.items():
        tree, lines = syntax_tree.module(data), added_lines(before.read(path), data)
        if tree is not None and lines:
            yield Inference(after, path), walk(tree, lines)


def _gone(
    before: World, after: World, changes: tuple[FileChange, ...], sound: dict[str, bytes]
) -> list[Trace]:
    """Return what the changes take away or rename."""
    judged = [c.path for c in changes if c.path in sound or c.after is None]
    return [trace for path in judged for trace in traces(before, after, path)]


def _reached(
    after: World, changes: tuple[FileChange, ...], sound: dict[str, bytes], gone: list[Trace]
) -> dict[str, frozenset[int]]:
    """Return the lines to judge: those added or beside a gap, and those that use what is ``gone``."""
    lines = {
        change.path: touched_lines(change.before, sound[change.path])
        for change in changes
        if change.path in sound
    }
    broken = {c.path for c in changes if c.path not in sound and c.after is not None}
    for path, mentioned in mentions(after, gone, tuple(lines)).items():
        if path not in broken:
            lines[path] = lines.get(path, frozenset()) | mentioned
    return lines


def _file(
    before: World, after: World, path: str, lines: frozenset[int], changed: bytes | None
) -> Iterator[Problem | Doubt]:
    data = after.read(path) if changed is None else changed
    tree = None if data is None else syntax_tree.module(data)
    if data is None or tree is None:
        return
    answers = list(_look(after, path, tree, lines))
    if changed is not None:
        old = before.read(path)
        answers += _of_names(after, path, changed, tree, touched_lines(old, changed))
        answers += duplicate_problems(path, tree, added_lines(old, changed))
    tokens = {answer.token for answer in answers if isinstance(answer, Problem)}
    known = _known(before, path, tokens) if tokens else frozenset()
    for answer in answers:
        if isinstance(answer, Problem):
            if (answer.code, answer.key) not in known:
                yield answer
        elif changed is not None:
            # What can't be told of a file that the patch leaves alone is nobody's news.
            yield answer


def _of_names(
    world: World, path: str, data: bytes, tree: ast.Module, lines: frozenset[int]
) -> Iterator[Problem | Doubt]:
    yield from name_problems(world, path, data, tree)
    yield from flow_problems(path, tree, lines)


def _look(
    world: World, path: str, tree: ast.Module, lines: frozenset[int]
) -> Iterator[Problem | Doubt]:
    sites = tuple(walk(tree, lines)) if lines else ()
    inference = Inference(world, path)
    yield from import_problems(inference, sites, lines)
    yield from call_problems(inference, sites)
    run = [site for site in sites if not (site.scope.tolerant or site.scope.typing_only)]
    for problems in (attribute_problems, kind_problems, string_problems, value_problems):
        yield from problems(inference, run)


def _known(before: World, path: str, tokens: set[str]) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Return the codes and keys of problems that the file had before the patch, of those with some tokens."""
    data = before.read(path)
    tree = None if data is None else syntax_tree.module(data)
    if data is None or tree is None:
        return frozenset()
    words = [token.encode() for token in tokens if token]
    rows = enumerate(data.splitlines(), 1)
    lines = frozenset(number for number, row in rows if any(word in row for word in words))
    answers = (*_look(before, path, tree, lines), *_of_names(before, path, data, tree, lines))
    return frozenset((one.code, one.key) for one in answers if isinstance(one, Problem))


def _overrides(before: World, after: World, path: str) -> Iterator[Problem | Doubt]:
    for symbol, changed, narrowed in changed_methods(before, after, path):
        met = [(one, one.method.line) for one in overrides_of(after, symbol, changed)]
        for name in narrowed:
            line = symbol.cls.methods[name][-1].line
            for other in subclasses(after, symbol):
                met += ((one, line) for one in overrides_of(after, other, frozenset((name,))))
        for override, line in met:
            for answer in override_problems(after, override, path, line):
                if isinstance(answer, Doubt) or not _had(before, answer, override):
                    yield answer


def _had(before: World, problem: Problem, now: Override) -> bool:
    """Tell whether the same override refused a call before the patch, in whatever file."""
    for path in (now.owner.path, *before.files):
        for _, was in classes_in(before, path):
            if was.cls.name != now.owner.cls.name:
                continue
            for override in overrides_of(before, was, frozenset((now.method.name,))):
                answers = override_problems(before, override, problem.path, problem.line)
                if any(isinstance(answer, Problem) for answer in answers):
                    return True
    return False
