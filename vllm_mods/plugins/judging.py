"""What of a plugin does not agree with a vLLM, and did with the one that it was made for: its files are held against both."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from inspect import Parameter

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.base.tree import Tree
from vllm_mods.fit.bodies import only_raises
from vllm_mods.fit.calls import calls_of
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.dead import gone_hooks
from vllm_mods.fit.gates import RULES, judge as judge_diagnostic
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.imports import import_problems
from vllm_mods.fit.judge import uncollected
from vllm_mods.fit.missing import NUMBERS
from vllm_mods.fit.other_versions import lessen
from vllm_mods.fit.overlay import load_python
from vllm_mods.fit.overrides import Override, learn_receivers, override_problems, overrides_of
from vllm_mods.fit.problems import Problem, at_site, finding, lasting
from vllm_mods.fit.replacements import owner_name, plain_function, replacement_problems, taker_of
from vllm_mods.fit.results import abstract_misuses
from vllm_mods.fit.run_time import Write, all_writes, soften
from vllm_mods.fit.search import classes_in, classes_named
from vllm_mods.fit.shapes import Class, Function, Symbol
from vllm_mods.fit.signatures import dotted
from vllm_mods.fit.types import invalid, said_of
from vllm_mods.fit.walk import sites_with
from vllm_mods.fit.world import SummaryCache, World, module_stem, remembered
from vllm_mods.plugins.callers import ASKING, callers, misuses
from vllm_mods.plugins.copies import Replaced, missed

_C = FindingCode
_ORDER = (_C.FIT_IMPORT, _C.FIT_DEAD, _C.FIT_ATTRIBUTE, _C.FIT_CALL, _C.FIT_OVERRIDE)
"""What is gone comes first: much of what is found below may follow from it."""
_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class View:
    """The files of a plugin beside one vLLM; it remembers what it was asked."""

    def __init__(self, tree: Tree, files: Mapping[str, bytes], cache: SummaryCache) -> None:
        self.files = files
        self.world = World(tree, files, cache)
        # where the plugin is installed, the tree has it too
        self.bare = World(tree, dict.fromkeys(files), cache, self.world.texts)

    def imports(self, path: str) -> dict[tuple[str, ...], Problem]:
        """Return what cannot be imported of vLLM, by what is the same beside another one."""
        data = self.files[path]
        every_line = frozenset(range(1, data.count(b"\n") + 2))
        answers = import_problems(
            self.world, path, sites_with(data, rb"\bvllm\b|\benvs\."), every_line
        )
        return {(*one.key, str(one.line)): one for one in answers if isinstance(one, Problem)}

    @cached_property
    def diagnostics(self) -> dict[tuple[object, ...], Diagnostic]:
        """What the type checker says, by what is the same beside another vLLM: its place and its rule."""
        files = {**self.files, **callers(self.world)}
        said = said_of(self.world, files, files)
        return {one[:4]: one for one in said if one.rule in RULES}  # it speaks of syntax unasked

    @cached_property
    def misuses(self) -> list[Problem]:
        """What vLLM takes from the plugin in vain."""
        return [*misuses(self.world, self.diagnostics.values())]

    def overrides(self, path: str) -> dict[tuple[str, str], Override]:
        """Return what the classes of a file override of vLLM's, by class and method."""
        return {
            (name, one.method.name): one
            for name, symbol in classes_in(self.world, path)
            for one in overrides_of(self.world, symbol, frozenset(symbol.cls.methods))
            if one.base.path not in self.files
        }

    def refused(self, override: Override) -> list[Problem]:
        """Return what is wrong with an override."""
        answers = override_problems(self.world, override, override.owner.path, override.method.line)
        return [one for one in answers if isinstance(one, Problem)]

    def lets_be(self, problem: Problem) -> bool:
        """Tell whether a problem is of a class or method that is for other versions."""
        sites = sites_with(self.files[problem.path], rb"\b(?:class|def)\b")
        return any(one.scope.tolerant and one.node.lineno == problem.line for one in sites)

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


def replaced_by(
    tree: Tree, package: str, names: frozenset[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield what an installed package replaces of some files' classes and functions, each with the file."""
    last = {name.rpartition(".")[2].encode() for _, name in names}
    named = re.compile(rb"\b(?:%b)\b" % b"|".join(last)).search
    paths = [path for path in (f"{package}.py", *tree.paths(package)) if path.endswith(".py")]
    files = {path: data for path in paths if named(data := tree.read(path) or b"")}
    view = View(tree, files, SummaryCache())
    for write in all_writes(view.world):
        if owner := view.owner(write) if write.name else None:
            told = f"{module_stem(owner_name(owner))}.{write.name}"
            path = owner.module or owner.path
            if (path, write.name if owner.module else told) in names:
                yield told, path


@uncollected()
def judge(files: Mapping[str, bytes], tree: Tree, origin: View | None) -> tuple[Finding, ...]:
    """Hold a plugin's Python files against a vLLM. What is also found beside its ``origin``, for which it was made, is left out.

    Without it all are notes, and what the plugin replaces and overrides is not judged. Raises as ``fit`` does.
    """
    target = View(tree, files, origin.world.cache if origin else SummaryCache())
    target.world.origin = origin.world if origin else None
    for view in (target, origin or target):
        load_python(view.world.tree)
    problems: list[Problem] = []
    for path in files:
        if target.world.module(path) is None:
            problems.append(_noted(invalid(path, 1, "the file was not read", None)))
            continue
        met = target.imports(path)
        known = origin.imports(path) if origin and met else {}
        problems += (one for key, one in met.items() if key not in known)
        problems += _standing_in(target, origin, path) if origin else ()
    problems += (*_overriding(target, origin), *_replaced(target, origin)) if origin else ()
    problems = [one for one in problems if not target.lets_be(one)]
    met_at = {(one.path, one.line) for one in problems}
    by_place = target.diagnostics
    old = origin.diagnostics if origin and by_place else {}
    unmet = ((key, one) for key, one in by_place.items() if one[:2] not in met_at)
    new = [one for key, one in unmet if one.path in files and key not in old]
    typed = (judge_diagnostic(target.world, one, gated=origin is None) for one in new)
    problems += (one for one in typed if one and one.level is Level.ERROR)
    was = {one.message for one in origin.misuses} if origin and target.misuses else ()
    made_for = f"vLLM {origin.world.tree.version}" if origin else ""
    for one in target.misuses:
        text = f"{one.message}; so it is with {made_for}, for which the plugin was made"
        problems.append(_noted(one._replace(message=text)) if one.message in was else one)
    met_by: dict[tuple[str, ...], list[Problem]] = {}
    for one in problems if origin else map(_noted, problems):
        # all but the code that meets what one change of vLLM makes
        text = lasting(re.sub(r"Self@\w+", "Self", one.message.partition("`: ")[2] or one.message))
        met_by.setdefault((one.code, text, one.level), []).append(one)
    causes = [_one_of(target.world, ones) for ones in met_by.values()]
    causes.sort(key=lambda one: (one.level, _rank(one, files), one[1:3]))
    return tuple(map(finding, causes))


def _rank(one: Problem, files: Mapping[str, bytes]) -> int:
    """Say where a problem comes: first what vLLM itself calls, which nobody can leave out, last what it cannot import."""
    rank = [*_ORDER, one.code].index(one.code)
    return rank if one.path in files else -rank


def _noted(problem: Problem) -> Problem:
    return problem._replace(level=Level.NOTE)


def _standing_in(target: View, origin: View, path: str) -> Iterator[Problem]:
    """Judge the classes of a file by vLLM's above them."""
    for site in sites_with(target.files[path], rb"\bclass\b"):
        new = [*abstract_misuses(target.world, path, site, origin.world)]
        if new and not any(abstract_misuses(origin.world, path, site, None)):
            yield from (at_site(path, site, _C.FIT_KIND, one, one.text) for one in new)
    gone = gone_hooks(target.bare, target.world, origin.world, path)
    yield from (one for one in gone if one.level is Level.ERROR)


def _overriding(target: View, origin: View) -> Iterator[Problem]:
    """Judge the methods that override what takes other parameters now."""
    both: list[tuple[Override, Override | None]] = []
    for path in target.files:
        was = origin.overrides(path)
        both += ((one, was.get(key)) for key, one in target.overrides(path).items())
    # what makes one of a class may begin to give what the class never took
    new = [(n, o) for n, o in both if not o or n.overridden[2:] != o.overridden[2:] or _is_maker(n)]
    learn_receivers(target.world, (one for one, _ in new if not _is_maker(one)))
    for override, before in new:
        mine, now = override.method, override.overridden
        problems, why = target.refused(override), ""
        raises = only_raises(target.world, override.owner.path, mine)
        if before and not (problems or raises or _is_maker(override)):
            why = _moved(target, mine, now, before.overridden) or _unlike(target, override, before)
        if why:
            name = f"{override.owner.cls.name}.{mine.name}"
            place, text = (override.owner.path, mine.line, name), f"{name}{mine.text()} {why}"
            yield Problem(_C.FIT_OVERRIDE, *place, text, (name,), mine.name)
        elif not (problems and before and origin.refused(before)):
            yield from problems


def _is_maker(override: Override) -> bool:
    return override.method.name == "__init__"  # each class has its own


def _moved(target: View, mine: Function, now: Function, was: Function) -> str:
    """Say which parameter has the place in which vLLM no longer gives it; ``""`` for none."""
    own, new, old = ([p.name for p in f.parameters if p.kind in _PLACED] for f in (mine, now, was))
    for place, (name, once) in enumerate(zip(own, old, strict=False)):
        if name != once or name not in new or new.index(name) == place:
            continue
        calls = (call for call in calls_of(target.world, now.name) if call.path not in target.files)
        if any(len(call.node.args) >= min(place, new.index(name)) for call in calls):
            return f"takes {name} as parameter {place + 1}, but this vLLM has it as parameter {new.index(name) + 1} of {now.text()}"
    return ""


def _unlike(target: View, now: Override, before: Override) -> str:
    """Say that a method is stated to give what vLLM's no longer does: as many values, or no class of vLLM; ``""`` for no."""
    mine, new = now.method.returns or "", now.overridden.returns or ""
    meant = [one.binding for one in target.world.resolve(now.base.path, new).symbols]
    is_other = mine[:6] == new[:6] == "tuple[" and "..." not in mine + new
    is_other |= mine in NUMBERS and Class in map(type, meant)
    if mine == new or mine != before.overridden.returns or not is_other:
        return ""
    return f"returns {mine}, but {now.base.cls.name} returns {new} in this vLLM"


def _replaced(target: View, origin: View) -> Iterator[Problem]:
    """Judge what is put in the place of names that vLLM has there."""
    writes = [origin.placed(write) for write in all_writes(target.world) if write.name]
    with_owners = [(write, target.owner(write)) for write in writes]
    handed = {write.name for write, owner in with_owners if owner is None}
    known = [(write, owner) for write, owner in with_owners if owner]
    owned = [(write, owner) for write, owner in known if not write.scope.tolerant]
    all_, names = (frozenset((owner_name(o), w.name or "") for w, o in ws) for ws in (known, owned))
    for write, owner in owned:
        name, before = write.name or "", origin.owner(write)
        place = write.path, write.node.lineno, write.scope.name
        what = f"{module_stem(owner_name(owner))}.{name}"
        if before is None or not origin.has(before, name):
            continue
        if not target.has(owner, name):
            read = re.compile((rb"\.%b\b(?!\s*=[^=])|" + ASKING) % ((name.encode(),) * 3))
            level = Level.NOTE if any(map(read.search, target.files.values())) else Level.ERROR
            text = f"{what} is replaced, but only vLLM {origin.world.tree.version} has it, not this vLLM"
            yield Problem(_C.FIT_DEAD, *place, text, (what,), name, level)
            continue
        if owner.module and before.module and name not in handed:
            here = Replaced(target.world, owner.module, name, all_)
            there = Replaced(origin.world, before.module, name, names)
            if why := next(missed(here, there, write), ""):
                text = f"{what} is replaced, but {why}; in vLLM {origin.world.tree.version} it used the new one"
                yield Problem(_C.FIT_DEAD, *place, text, (what,), name)
        old = plain_function(origin.world, before, name)
        now = plain_function(target.world, owner, name)
        same = old and now and old.function.parameters == now.function.parameters
        if write.value is None or same:
            continue
        taker = taker_of(target.world, write.path, write.scope, write.value)
        functions = [one.function for one in (taker, now, old) if one]
        if len(functions) == 3 and (moved := _moved(target, *functions)):
            text = f"{what} is replaced at run time by {functions[0].name}{functions[0].text()}, which {moved}"
            yield Problem(_C.FIT_OVERRIDE, *place, text, (what,), name)
        elif not any(replacement_problems(origin.world, write, names)):
            yield from replacement_problems(target.world, write, names)


def _one_of(world: World, problems: list[Problem]) -> Problem:
    """Return the first of the problems with one cause that is an error, the first one if none is, with how many there are."""
    noted = (_noted(one) if _is_chosen(world, one.path) else one for one in problems)
    judged = [lessen(world, soften(world, one)) for one in noted]
    worst, more = min(judged, key=lambda one: (one.level is Level.NOTE, one[1:3])), len(judged) - 1
    text = f"{worst.message}; the same in {more} other place{'s' * (more != 1)}"
    return worst._replace(message=text) if more else worst


@remembered
def _is_chosen(world: World, path: str) -> bool:
    """Tell whether all imports of a plugin's file stand where it asks for a version."""
    stem = re.escape(module_stem(path).encode())
    # in a list of several lines, it stands after names alone
    line = rb"^(?:(?=.*\b(?:from|import)\b).*|[\s\w,]*)\b%b\b" % stem
    others = (data or b"" for other, data in world.files.items() if other != path)
    sites = (site for data in others if stem in data for site in sites_with(data, line))
    imports = (site for site in sites if isinstance(site.node, ast.Import | ast.ImportFrom))
    return path in world.files and {site.scope.tolerant for site in imports} == {True}
