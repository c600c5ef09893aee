"""The checks, in order, over the files that a patch changes and those it reaches."""

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.fit import AtOrigin
from vllm_mods.fit.asked import IGNORED
from vllm_mods.fit.cycles import cycle_problems
from vllm_mods.fit.dead import dead_problems
from vllm_mods.fit.duplicates import duplicate_problems
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.imports import import_problems
from vllm_mods.fit.lines import added_lines, lines_with, touched_lines
from vllm_mods.fit.other_versions import lessen
from vllm_mods.fit.overlay import load_python
from vllm_mods.fit.overrides import Override, changed_methods, override_problems, overrides_of
from vllm_mods.fit.problems import Answers, Doubt, Problem, at_site, finding, lasting, notes
from vllm_mods.fit.replacements import owner_name, replacement_problems
from vllm_mods.fit.results import abstract_misuses, call_misuses, result_misuses
from vllm_mods.fit.run_time import Write, run_time_writes, soften
from vllm_mods.fit.search import WORD, classes_in, subclasses
from vllm_mods.fit.shapes import Class
from vllm_mods.fit.signatures import every, imports_of
from vllm_mods.fit.strings import string_misuses
from vllm_mods.fit.types import MOST_USERS, Question, syntax_problems, type_problems
from vllm_mods.fit.users import Sought, changed_names, users
from vllm_mods.fit.walk import local_names, walk
from vllm_mods.fit.world import SummaryCache, World
from vllm_mods.formats import syntax_tree


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector of cycles off: syntax trees have none, and to walk over them takes a quarter of all the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@uncollected()
def judge(
    changes: tuple[FileChange, ...], tree: Tree, cache: SummaryCache, origin: AtOrigin | None
) -> tuple[tuple[Finding, ...], set[str]]:
    """Run every check. ``origin`` is where the patch was written, if that can be had.

    Returns the problems, then a note for each file of what cannot be told, and the paths of the files that these rest on.
    """
    load_python(tree)
    before, after = _both(tree, changes, cache)
    answers: list[Problem | Doubt] = []
    judged: list[FileChange] = []
    sought: list[Sought] = []
    writes: list[Write] = []
    at_origin = None  # what the type checker can be asked about the patch where it was written
    if origin is not None:
        there = tuple(change for change in origin.changes if change.path.endswith(".py"))
        at_origin = Question(*_both(origin.tree, there, cache), there, (), frozenset())
    origin_with = at_origin and at_origin.after
    # All of one file, then the next: its syntax trees are at hand.
    for change in changes:
        path, data = change.path, change.after
        syntax = [] if data is None else list(syntax_problems(path, data, after.python))
        answers += syntax
        if any(isinstance(answer, Problem) for answer in syntax):
            continue
        judged.append(change)
        sought += changed_names(before, after, path)
        if data is None:
            continue
        lines = touched_lines(change.before, data)
        answers.extend(_file(before, after, path, lines, changed=True, at_origin=origin_with))
        answers.extend(_overrides(before, after, path))
        answers.extend(dead_problems(before, after, path, at_origin and at_origin.before))
        added = added_lines(change.before, data)
        answers.extend(cycle_problems(before, after, path, added))
        writes += run_time_writes(path, data, added)
        _consult(after, path, data, added)
    used, names = users(after, sought)
    if len(used) > MOST_USERS:
        why = f"{len(used)} files mention what the patch changes, but the type checker read only {MOST_USERS}"
        answers.append(Doubt(judged[0].path, "use", why))
    for path, lines in used.items():
        answers.extend(_file(before, after, path, lines, changed=False, at_origin=origin_with))
    owned = ((write.name, one) for write in writes if write.name for one in write.owners(after))
    replaced = frozenset((owner_name(one), name) for name, one in owned)
    for write in writes:
        answers.extend(replacement_problems(after, write, replaced))
    question = Question(before, after, tuple(judged), tuple(used), names)
    answers.extend(_opinion(question, at_origin, answers))
    problems = [_honour(after, problem) for problem in _distinct(answers)]
    problems = [lessen(after, soften(after, problem)) for problem in problems]
    doubts = [answer for answer in answers if isinstance(answer, Doubt)]
    findings = (*(finding(problem) for problem in problems), *notes(doubts))
    return findings, before.consulted | after.consulted


def _both(tree: Tree, changes: tuple[FileChange, ...], cache: SummaryCache) -> tuple[World, World]:
    """Return a tree before and after some changes: what was read of one is not read again for the other."""
    texts: dict[str, bytes | None] = {}
    before = World(tree, {change.path: change.before for change in changes}, cache, texts)
    return before, World(tree, {change.path: change.after for change in changes}, cache, texts)


def _consult(after: World, path: str, data: bytes, lines: frozenset[int]) -> None:
    """Note the files that the type checker's words of some lines rest on: of what they name, and of the classes around them."""
    rows = data.splitlines()
    named = {word for line in lines for word in WORD.findall(rows[line - 1])}
    nodes = syntax_tree.all_statements(syntax_tree.module(data) or ast.Module([], []))
    imports = (n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom))
    aliases = (pair for node in imports for pair in imports_of(node))
    found = (after.imported(path, alias) for name, alias in aliases if name.encode() in named)
    symbols = [symbol for one in found for symbol in one.symbols]
    for _, symbol in classes_in(after, path):
        if not lines.isdisjoint(range(symbol.cls.line, symbol.cls.end + 1)):
            symbols.append(symbol)
    for symbol in symbols:
        if isinstance(symbol.binding, Class):
            lineage(after, symbol)


# An override is met from both its ends; of a name the first place in a scope is enough.
_ONCE = {FindingCode.FIT_OVERRIDE, FindingCode.FIT_UNDEFINED_NAME}


def _distinct(answers: list[Problem | Doubt]) -> tuple[Problem, ...]:
    """Leave one answer per problem."""
    distinct: dict[tuple[object, ...], Problem] = {}
    for answer in answers:
        if isinstance(answer, Problem):
            place = () if answer.code in _ONCE else (answer.path, answer.line)
            distinct.setdefault((answer.code, *answer.key, *place), answer)
    return tuple(distinct.values())


def _opinion(
    question: Question, at_origin: Question | None, answers: list[Problem | Doubt]
) -> list[Problem | Doubt]:
    """Return what the type checker says of lines of which nothing is said yet, one thing of a kind for each."""
    met = {(one.path, one.line, one.level) for one in answers if isinstance(one, Problem)}
    opinions = list(type_problems(question, at_origin)) if question.changes else []
    problems = [one for one in opinions if isinstance(one, Problem)]
    problems.sort(key=lambda problem: problem.level is Level.ERROR)
    last = {(one.path, one.line, one.code): one for one in problems}
    doubts = [one for one in opinions if isinstance(one, Doubt)]
    new = (
        one
        for one in last.values()
        if met.isdisjoint((one.path, one.line, level) for level in (Level.ERROR, one.level))
    )
    return [*doubts, *new]


def _honour(after: World, problem: Problem) -> Problem:
    """Make a note of what the author has told a type checker to let be."""
    stays = problem.level is Level.NOTE or problem.code == FindingCode.FIT_SYNTAX
    if stays or not IGNORED.search(after.row(problem.path, problem.line)):
        return problem
    message = f"{problem.message} (the line says `type: ignore`)"
    return problem._replace(level=Level.NOTE, message=message)


def _file(
    before: World,
    after: World,
    path: str,
    lines: frozenset[int],
    *,
    changed: bool,
    at_origin: World | None,
) -> Answers:
    """Judge one file; ``at_origin`` is the tree that the patch was written for, with it."""
    data = after.read(path) or b""
    tree = syntax_tree.module(data)
    if tree is None:
        return
    answers = list(_look(after, path, tree, lines, at_origin))
    if changed:
        answers += _names(after, path, tree)
        answers += duplicate_problems(path, tree, added_lines(before.read(path), data))
    tokens = {answer.token for answer in answers if isinstance(answer, Problem)}
    known = _known(before, path, tokens) if tokens else frozenset()
    for answer in answers:
        if isinstance(answer, Problem):
            if (answer.code, answer.key) not in known:
                yield answer
        elif changed:
            # What can't be told of a file that the patch leaves alone is nobody's news.
            yield answer


def _look(
    world: World, path: str, tree: ast.Module, lines: frozenset[int], at_origin: World | None = None
) -> Answers:
    sites = tuple(walk(tree, lines))
    yield from import_problems(world, path, sites, lines)
    compared: set[int] = set()
    for site in sites:
        if site.scope.tolerant or site.scope.typing_only:
            continue
        if isinstance(site.node, ast.Compare):
            compared.update(map(id, every(site.node)))  # a name that is compared is not looked up
        place = world, path, site
        if not (isinstance(site.node, ast.Constant) and id(site.node) in compared):
            for misuse in string_misuses(*place):
                yield at_site(path, site, FindingCode.FIT_STRING, misuse, misuse.token, misuse.text)
        kinds = (*result_misuses(*place), *abstract_misuses(*place, at_origin))
        calls = call_misuses(*place)
        for code, found in ((FindingCode.FIT_KIND, kinds), (FindingCode.FIT_CALL, calls)):
            for misuse in found:
                yield at_site(path, site, code, misuse, site.scope.name, lasting(misuse.text))


def _names(world: World, path: str, tree: ast.Module) -> Answers:
    """Judge the names of a module that are bound for type checkers only, where each scope reads them first."""
    module = world.module(path)
    names = module.names if module else {}
    typing = {n for n, by in names.items() if all(getattr(b, "typing_only", False) for b in by)}
    for node, scope in walk(tree, lines_with(world.glance(path) or b"", typing)):
        if not isinstance(node, ast.Name) or node.id not in typing or scope.typing_only:
            continue
        name, is_read = node.id, isinstance(node.ctx, ast.Load)
        if is_read and not any(name in local_names(one.node) for one in scope.around()):
            why = f"the name {name} is imported for type checkers only, but used at run time"
            place, key = (path, node.lineno, scope.name), (path, scope.name, name)
            yield Problem(FindingCode.FIT_UNDEFINED_NAME, *place, why, key, token=name)


def _known(before: World, path: str, tokens: set[str]) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Return the codes and keys of problems that the file had before the patch, of those with some tokens."""
    data = before.read(path) or b""
    tree = syntax_tree.module(data)
    if tree is None:
        return frozenset()
    words = [token.encode() for token in tokens if token]
    rows = enumerate(data.splitlines(), 1)
    lines = frozenset(number for number, row in rows if any(word in row for word in words))
    answers = (*_look(before, path, tree, lines), *_names(before, path, tree))
    return frozenset((one.code, one.key) for one in answers if isinstance(one, Problem))


def _overrides(before: World, after: World, path: str) -> Answers:
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
    return any(
        isinstance(answer, Problem)
        for path in (now.owner.path, *before.files)
        for _, was in classes_in(before, path)
        if was.cls.name == now.owner.cls.name
        for override in overrides_of(before, was, frozenset((now.method.name,)))
        for answer in override_problems(before, override, problem.path, problem.line)
    )
