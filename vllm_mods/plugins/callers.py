"""What vLLM takes from a plugin's packages: imports of what these have not, and calls that they do not take."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.arguments import argument
from vllm_mods.fit.asked import Asked
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.gates import RULES, judge
from vllm_mods.fit.imports import import_problems
from vllm_mods.fit.missing import lacks, not_found
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.search import files_mentioning, is_mentioned
from vllm_mods.fit.signatures import DefNode, every
from vllm_mods.fit.walk import caught
from vllm_mods.fit.world import World, absolute
from vllm_mods.formats import syntax_tree

_OF_CALLS = {name for name, rule in RULES.items() if rule.always is argument}
_USING = _OF_CALLS | {name for name, rule in RULES.items() if rule.always in (lacks, not_found)}
_OF_MODULES = ("import-not-found", "missing-module-member")
_DEFINED = re.compile(r"(\S+\.py):\d")
_ANYTHING = ("", "Exception", "BaseException")
ASKING = rb"(?:has|get)attr\([^()]*[\"']%b[\"']|[\"']%b[\"'] (?:not )?in\b"
"""How code asks for a name before it uses it."""


def callers(world: World) -> Mapping[str, bytes]:
    """Return the files of vLLM that import a plugin's packages, each as it runs where these imports succeed."""
    packages = _packages(world)
    named = b"|".join(map(str.encode, packages))
    takes = re.compile(rb"(?m)^[ \t]*(?:from|import)[ \t]+(?:%b)\b" % named)
    files = files_mentioning(world, packages)
    found = ((path, data) for path, data in files if path[:5] == "vllm/" and takes.search(data))
    return {path: _without_fallbacks(data, takes) for path, data in found}


def _packages(world: World) -> set[str]:
    """Return the plugin's packages; to one without ``__init__.py`` others may add."""
    starts = {path.removesuffix("/__init__.py").removesuffix(".py") for path in world.files}
    return starts & world.roots - {"vllm"}


def _without_fallbacks(data: bytes, takes: re.Pattern[bytes]) -> bytes:
    """Return a file that does nothing where an import fails, everything in its place."""
    rows = data.splitlines(keepends=True)
    nodes = every(syntax_tree.module(data) or ast.Module([], []))
    tries = [one for one in nodes if isinstance(one, ast.Try)]
    for node in sorted(tries, key=lambda one: -one.lineno):  # the inner ones first
        is_taking = takes.search(b"".join(rows[node.lineno : node.body[-1].end_lineno]))
        for body in (one.body for one in node.handlers if is_taking):
            first, last = body[0].lineno - 1, body[-1].end_lineno or 0
            nothing = rows[first][: body[0].col_offset] + b"pass\n"
            rows[first:last] = [nothing, *[b"\n"] * (last - first - 1)]
    return b"".join(rows)


def misuses(world: World, diagnostics: Collection[Diagnostic]) -> Iterator[Problem]:
    """Yield what the type checker says of vLLM's use of a plugin: one thing for a call, and nothing behind an import that fails.

    A module that the plugin itself imports is made somewhere, as a compiled one is.
    """
    own = (one for one in diagnostics if one.path in world.files)
    made = {_named(one) for one in own if one.rule in _OF_MODULES}
    reported: set[tuple[str, int]] = set()
    for one in diagnostics:
        if one.rule not in _USING or _named(one) in made or one.path in world.files:
            continue
        asked = Asked(world, one)
        call, whole = asked.call(), (one.path, 0)
        place = one.path, call.lineno if call else one.line
        if reported.isdisjoint((place, whole)) and (problem := _problem(asked)):
            ends = problem.code is FindingCode.FIT_IMPORT and not problem.scope
            reported.add(whole if ends else place)
            yield problem


def _named(one: Diagnostic) -> str:
    """Return the whole name of a module that is not found."""
    names = re.findall(r"`(\.*)([\w.]*)`", one.text)
    return ".".join(absolute(one.path, len(dots), name) for dots, name in names)


def _problem(asked: Asked) -> Problem | None:
    """Return what of the plugin vLLM misuses in a place, unless the code around it, or the plugin's, may know better."""
    world, one = asked.world, asked.diagnostic
    if _expects_it(asked):
        return None
    for problem in import_problems(world, one.path, asked.sites, frozenset((one.line,))):
        if isinstance(problem, Problem) and problem.key[0].partition(".")[0] in _packages(world):
            return None if _is_asked_for(world, problem.key[1]) else problem
    kind = asked.member[1] if asked.member else ""
    members = (*asked.classes(kind), *world.locate(kind).symbols)
    meant = asked.called() if one.rule in _OF_CALLS else members
    places = {symbol.module or symbol.path for symbol in meant} | {*_DEFINED.findall(one.more)}
    judged = None if places.isdisjoint(world.files) else judge(world, one, gated=True)
    is_sure = judged and judged.level is Level.ERROR and not _is_asked_for(world, judged.token)
    return judged if is_sure else None


def _expects_it(asked: Asked) -> bool:
    """Tell whether code is ready for an error, or only who asked for the package may come there."""
    tries = (node for node in asked.around if isinstance(node, ast.Try))
    functions = [node for node in asked.around if isinstance(node, DefNode)]
    # whoever is handed a function may catch what it raises
    if len(functions) > 1 or any(not caught(node).isdisjoint(_ANYTHING) for node in tries):
        return True
    world, data = asked.world, asked.world.glance(asked.diagnostic.path) or b""
    near = [name for name in _packages(world) if functions and name.encode() in data]
    asks = ((name, rb"(?:find_spec|has_module)\([\"']%b\b" % name.encode()) for name in near)
    return any(is_mentioned(world, name, re.compile(pattern)) for name, pattern in asks)


def _is_asked_for(world: World, name: str) -> bool:
    """Tell whether code asks for a name, or lists it in a table of modules and names."""
    asks = re.compile((ASKING + rb"|[\"'], [\"']%b[\"']") % ((name.encode(),) * 3))
    return name != "" and is_mentioned(world, name, asks)
