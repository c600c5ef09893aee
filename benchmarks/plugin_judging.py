"""What of a plugin does not agree with a vLLM, and did with the one that it was made for.

The plugin's files are held against both trees as files beside vLLM: nothing of vLLM uses them by name. What is found in
both is no news, whatever it is; where the other tree is not known, nothing is.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from inspect import Parameter
from itertools import chain

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.fit.abstract import abstract_misuses
from vllm_mods.fit.calls import calls_of
from vllm_mods.fit.checker import Diagnostic, check, replaced
from vllm_mods.fit.dead import gone_hooks
from vllm_mods.fit.gates import RULES, judge as judge_diagnostic
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.imports import import_problems
from vllm_mods.fit.other_versions import lessen
from vllm_mods.fit.overlay import PYTHON
from vllm_mods.fit.overrides import Override, override_problems, overrides_of
from vllm_mods.fit.problems import Problem, at_site, finding, lasting
from vllm_mods.fit.replacements import owner_name, replacement_problems, taker_of
from vllm_mods.fit.run_time import Write, run_time_writes, soften
from vllm_mods.fit.search import classes_in, classes_named
from vllm_mods.fit.shapes import Class, Function, Symbol
from vllm_mods.fit.signatures import dotted
from vllm_mods.fit.syntax import invalid
from vllm_mods.fit.types import plain_getattr
from vllm_mods.fit.walk import walk
from vllm_mods.fit.world import SummaryCache, World, module_stem, remembered
from vllm_mods.formats import syntax_tree

_NAMES_VLLM = re.compile(rb"\bvllm\b|\benvs\.")
_NAMING = frozenset({"missing-argument", "unknown-argument", "too-many-positional-arguments"})
"""Rules that say of one call several things, one after the other."""
_METHOD = re.compile(r"Self@\w+")
_WRITES = re.compile(
    rb"^[ \t]*(?!(?:self|cls)\.)[A-Za-z_][\w.]*\.\w+\s*(?::[^=\n]+)?=[^=]|setattr|\bvars\(|__dict__|sys\.modules|patch",
    re.MULTILINE,
)
_C = FindingCode
_ORDER = (_C.FIT_IMPORT, _C.FIT_DEAD, _C.FIT_ATTRIBUTE, _C.FIT_CALL, _C.FIT_OVERRIDE)
"""What is gone comes first: much of what is found below may follow from it."""


class _PluginView:
    """The files of a plugin beside one vLLM."""

    def __init__(self, tree: Tree, files: Mapping[str, bytes], cache: SummaryCache) -> None:
        if tree.remote:
            tree.load([path for path in tree.paths("vllm") if path.endswith(PYTHON)])
        self.files = files
        self.world = World(tree, files, cache)
        # where the plugin is installed, the tree has it too
        self.bare = World(tree, dict.fromkeys(files), cache, self.world.texts)

    def imports(self, path: str) -> dict[tuple[str, ...], Problem]:
        rows = enumerate(self.files[path].splitlines(), 1)
        lines = frozenset(number for number, row in rows if _NAMES_VLLM.search(row))
        sites = walk(_parsed(self.files[path]), lines) if lines else ()
        answers = import_problems(self.world, path, sites, _every_line(self.files[path]))
        return {(*one.key, str(one.line)): one for one in answers if isinstance(one, Problem)}

    def diagnostics(self, paths: Collection[str]) -> tuple[Diagnostic, ...]:
        files = {path: plain_getattr(data) for path, data in self.files.items()}
        folder = self.world.cache.laid_out.show(self.world.tree, replaced(), files)
        said = check(folder, paths, RULES, self.world.python)
        return tuple(one for one in said if one.rule in RULES and RULES[one.rule].only in one.text)

    def open_classes(self, path: str, other: World) -> Iterator[Problem]:
        """Judge the classes of a file that leave abstract methods open, and do not beside another vLLM."""
        lines = frozenset(one.cls.line for _, one in classes_in(self.world, path) if one.cls.bases)
        for site in walk(_parsed(self.files[path]), lines) if lines else ():
            for misuse in abstract_misuses(self.world, path, site, other):
                key = site.scope.name, misuse.text
                yield at_site(path, site, _C.FIT_KIND, misuse, *key)

    def overrides(self, path: str) -> dict[tuple[str, str], Override]:
        return {
            (name, one.method.name): one
            for name, symbol in classes_in(self.world, path)
            for one in overrides_of(self.world, symbol, frozenset(symbol.cls.methods))
            if one.base.path not in self.files
        }

    def refused(self, override: Override) -> list[Problem]:
        answers = override_problems(self.world, override, override.owner.path, override.method.line)
        return [one for one in answers if isinstance(one, Problem)]

    def owner(self, write: Write) -> Symbol | None:
        """Return the class or module of vLLM that is written to, where it is one."""
        owners = write.owners(self.world)
        one = owners[0] if len(owners) == 1 else Symbol()
        place = one.path if isinstance(one.binding, Class) else one.module or ""
        return one if place.startswith("vllm/") else None

    def placed(self, write: Write) -> Write:
        """Name what is written to, where only its name is known: the one class of vLLM that has that name, and the method."""
        name = (dotted(write.owner) or "").rpartition(".")[2]
        is_unknown = name[:1].isupper() and not write.owners(self.world)
        named = classes_named(self.bare, name) if is_unknown else ()
        likely = [one for one in named if write.name in one.cls.methods]
        if len(likely) != 1:
            return write
        module = likely[0].path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return write._replace(owner=ast.Constant(f"{module}.{name}"))

    def has(self, owner: Symbol, name: str) -> bool:
        """Tell whether a class or module may have a name."""
        if owner.module:
            return self.world.lookup(owner.module, name).exists is not False
        line = lineage(self.world, owner)
        open_ = line.unknown or any(one.cls.dynamic for one in line.classes)
        return open_ or name in attributes(self.world, line)

    def function(self, owner: Symbol, name: str) -> Function | None:
        """Return the one function that a class or module has under a name."""
        if owner.module:
            found = [one.binding for one in self.world.lookup(owner.module, name).symbols]
        else:
            found = [*(lineage(self.world, owner).owner(name) or (None, ()))[1]]
        return found[0] if len(found) == 1 and isinstance(found[0], Function) else None


def _every_line(data: bytes) -> frozenset[int]:
    return frozenset(range(1, data.count(b"\n") + 2))


def _parsed(data: bytes) -> ast.Module:
    return syntax_tree.module(data) or ast.Module([], [])


def _typed(
    here: _PluginView, there: _PluginView | None, met: set[tuple[str, int]]
) -> Iterator[Problem]:
    """Yield the errors that the type checker names here and not there, of places of which nothing is said yet."""
    said = here.diagnostics(here.files)
    asked = {one.path for one in said}
    known = set(map(_sameness, there.diagnostics(asked))) if there and said else set()
    for diagnostic in said:
        if _sameness(diagnostic) not in known and (diagnostic.path, diagnostic.line) not in met:
            problem = judge_diagnostic(here.world, diagnostic, gated=there is None)
            if problem and problem.level is Level.ERROR:
                yield problem


def _sameness(one: Diagnostic) -> tuple[object, ...]:
    """Return by what a complaint is the same beside another vLLM: its place and its rule."""
    return *one[:4], one.text if one.rule in _NAMING else ""


def _standing_in(here: _PluginView, there: _PluginView, path: str) -> Iterator[Problem]:
    """Judge the classes of a file by vLLM's above them."""
    yield from here.open_classes(path, there.world)
    gone = gone_hooks(here.bare, here.world, there.world, path)
    yield from (one for one in gone if one.level is Level.ERROR)
    was = there.overrides(path)
    for key, override in here.overrides(path).items():
        before, mine, now = was.get(key), override.method, override.overridden
        if before and before.overridden.parameters == now.parameters:
            continue
        problems = here.refused(override)
        if before and problems and there.refused(before):
            continue
        yield from problems
        moved = before and not problems and _moved(here, mine, now, before.overridden)
        if moved:
            name = f"{override.owner.cls.name}.{mine.name}"
            place = path, mine.line, name
            text = f"{name}{mine.text()} {moved}"
            yield Problem(_C.FIT_OVERRIDE, *place, text, (name,), mine.name)


def _moved(here: _PluginView, mine: Function, now: Function, before: Function) -> str:
    """Say which parameter has the place in which vLLM no longer gives it; ``""`` for none."""
    own, new, old = map(_places, (mine, now, before))
    for name, place in own.items():
        least = min(place, new.get(name, place))
        calls = (call for call in calls_of(here.world, now.name) if call.path not in here.files)
        is_moved = place == old.get(name) and place != new.get(name, place)
        if is_moved and any(len(call.node.args) >= least for call in calls):
            return (
                f"takes {name} in another place than this vLLM gives it, whose own is {now.text()}"
            )
    return ""


def _places(function: Function) -> dict[str, int]:
    by_place = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return {one.name: n for n, one in enumerate(function.parameters) if one.kind in by_place}


def _replaced(here: _PluginView, there: _PluginView, writes: Iterable[Write]) -> Iterator[Problem]:
    """Judge what is put in the place of names that vLLM has there."""
    placed = [there.placed(write) for write in writes if write.name and not write.scope.tolerant]
    owned = [(write, owner) for write in placed if (owner := here.owner(write))]
    names = frozenset((owner_name(one), w.name or "") for w, one in owned)
    for write, owner in owned:
        name, before = write.name or "", there.owner(write)
        place = write.path, write.node.lineno, write.scope.name
        what = f"{owner_name(owner)}.{name}"
        if before is None or not there.has(before, name):
            continue
        if not here.has(owner, name):
            read = re.compile(rb"\.%b\b(?!\s*=[^=])" % name.encode())
            used = any(read.search(data) for data in here.files.values())
            text = f"{what} is replaced, but this vLLM has none; vLLM {there.world.tree.version} has it"
            level = Level.NOTE if used else Level.ERROR
            yield Problem(_C.FIT_DEAD, *place, text, (what,), name, level)
            continue
        old, now = there.function(before, name), here.function(owner, name)
        if write.value is None or (old and now and old.parameters == now.parameters):
            continue
        taker = taker_of(here.world, write.path, write.scope, write.value)
        if taker and old and now and (moved := _moved(here, taker.function, now, old)):
            mine = taker.function
            text = f"{what} becomes {mine.name}{mine.text()}, which {moved}"
            yield Problem(_C.FIT_OVERRIDE, *place, text, (what,), name)
        elif not any(replacement_problems(there.world, write, names)):
            yield from replacement_problems(here.world, write, names)


def judge(files: Mapping[str, bytes], tree: Tree, made_for: Tree | None) -> tuple[Finding, ...]:
    """Hold a plugin's Python files against a vLLM. What is also found in ``made_for`` is left out.

    Without it all are notes, and what the plugin replaces and overrides is not judged. Raises as ``fit`` does.
    """
    cache = SummaryCache()
    sound = {path: data for path, data in files.items() if syntax_tree.module(data)}
    here = _PluginView(tree, sound, cache)
    there = _PluginView(made_for, sound, cache) if made_for else None
    writing = {path: data for path, data in sound.items() if _WRITES.search(data)}
    writes = [w for p, d in writing.items() for w in run_time_writes(p, d, _every_line(d))]
    problems = [invalid(path, 1, "it was not read", None) for path in files.keys() - sound.keys()]
    problems = [one._replace(level=Level.NOTE) for one in problems]
    for path in sound:
        met = here.imports(path)
        known = there.imports(path).keys() if there and met else set()
        problems += (one for key, one in met.items() if key not in known)
        problems += _standing_in(here, there, path) if there else ()
    problems += _replaced(here, there, writes) if there else ()
    problems += _typed(here, there, {(one.path, one.line) for one in problems})
    met_by: dict[tuple[str, ...], list[Problem]] = defaultdict(list)
    for one in problems:
        met_by[_cause(one)].append(one)
    causes = [_one_of(here.world, ones) for ones in met_by.values()]
    if there is None:
        causes = [one._replace(level=Level.NOTE) for one in causes]
    return tuple(map(finding, sorted(causes, key=_rank)))


def _cause(problem: Problem) -> tuple[str, ...]:
    """Return what problems have in common that one change of vLLM makes: all but the code that meets it."""
    text = problem.message.partition("`: ")[2] or problem.message
    return problem.code, lasting(_METHOD.sub("Self", text)), problem.level


def _one_of(world: World, problems: list[Problem]) -> Problem:
    """Return the first of the problems with one cause that is an error, the first one if none is, with how many there are."""
    problems.sort(key=lambda one: one[1:3])
    levels = {
        path: Level.NOTE for path in {one.path for one in problems} if _is_chosen(world, path)
    }
    problems = [one._replace(level=levels.get(one.path, one.level)) for one in problems]
    judged = (lessen(world, soften(world, one)) for one in problems)
    first = next(judged)
    errors = (one for one in chain((first,), judged) if one.level is Level.ERROR)
    worst, more = next(errors, first), len(problems) - 1
    text = f"{worst.message}; so in {more} other place{'s' * (more != 1)}"
    return worst._replace(message=text) if more else worst


@remembered
def _is_chosen(world: World, path: str) -> bool:
    """Tell whether all imports of a file stand where the plugin asks for a version."""
    stem = module_stem(path)
    named = re.compile(rb"\b%b\b" % re.escape(stem.encode()))
    guarded: set[bool] = set()
    for other, data in world.files.items():
        rows = enumerate((data or b"").splitlines(), 1)
        lines = frozenset(number for number, row in rows if named.search(row))
        sites = walk(_parsed(data or b""), lines) if lines and other != path else ()
        imports = (one for one in sites if isinstance(one.node, ast.Import | ast.ImportFrom))
        guarded.update(one.scope.tolerant for one in imports)
    return guarded == {True}


def _rank(problem: Problem) -> tuple[object, ...]:
    rank = _ORDER.index(problem.code) if problem.code in _ORDER else len(_ORDER)
    return problem.level is Level.NOTE, rank, problem.path, problem.line
