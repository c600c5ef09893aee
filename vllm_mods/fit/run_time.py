"""What changed code writes on classes and modules while it runs: fit cannot tell what is there afterwards.

``Class.name = f``, ``module.name = g``, ``setattr(…)``, ``vars(module)["name"] = g`` and the like. A problem that may rest on such a write is a note.
When the write runs, and whether it runs before the use, is not asked.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from inspect import Parameter
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.shapes import words
from vllm_mods.fit.signatures import dotted, every
from vllm_mods.fit.walk import CodeScope, CodeSite, local_names

_RESTING = {
    FindingCode.FIT_ATTRIBUTE,
    FindingCode.FIT_CALL,
    FindingCode.FIT_IMPORT,
    FindingCode.FIT_KIND,
    FindingCode.FIT_TYPES,
}
_MAKERS = words("__init__ __new__ __call__ __getattr__ __getattribute__ __bases__ __class__")
_SETTERS = {
    "setattr",
    "type.__setattr__",
    "object.__setattr__",
    "mock.patch.object",
    "patch.object",
}

_QUOTED = re.compile(r"`(?:\w+\.)*(\w+)`")
_PLACED = re.compile(r"\b(\w+) \([\w/]+\.py:\d+\)")  # the class that is meant, with its place


class RunTimeWrites(NamedTuple):
    """``names`` are attributes that are written; of ``owners``, by their last names, any attribute may be."""

    names: frozenset[str]
    owners: frozenset[str]

    def soften(self, problem: Problem) -> Problem:
        """Return a problem as a note, if what is written may be the reason for it."""
        if not may_rest_on_writes(problem):
            return problem
        # without the code that the type checker's words are about
        words = problem.message.partition("`: ")[2] or problem.message
        named = set(re.findall(r"\w+", words))
        about = {problem.token, *_QUOTED.findall(words), *_PLACED.findall(words)}
        name = next(iter(sorted(self.names & about)), "")
        owner = next(iter(sorted(self.owners & named)), "")
        if not name and not owner:
            return problem
        what = f"{name} is" if name else f"attributes of {owner} are"
        message = f"{problem.message} ({what} changed while the code runs)"
        return problem._replace(level=Level.NOTE, message=message)


def may_rest_on_writes(problem: Problem) -> bool:
    """Tell whether a problem is an error that what the code writes at run time could be the reason for."""
    return problem.level is Level.ERROR and problem.code in _RESTING


def run_time_writes(sites: Iterable[CodeSite]) -> RunTimeWrites:
    """Return what the code at some sites of changed files writes on classes and modules."""
    names: set[str] = set()
    owners: set[str] = set()
    for site in sites:
        for owner, name in _writes(site):
            if name is None or name in _MAKERS:
                owners.update(_written_owners(owner, site.scope))
            if name is not None:
                names.add(name)
    return RunTimeWrites(frozenset(names), frozenset(owners))


def _writes(site: CodeSite) -> Iterator[tuple[ast.expr, str | None]]:
    """Yield what is written to, and the attribute, None where only the run knows its name."""
    match site.node:
        case ast.Assign(targets=targets):
            for target in targets:
                match target:
                    case ast.Attribute(value=owner, attr=name):
                        first = _first_name(owner)
                        if first not in {"self", "cls"}:
                            # an object that a function was given is its caller's
                            yield owner, None if _is_parameter(first, site.scope) else name
                    case ast.Subscript(value=table, slice=key) if whose := _owner_of(table):
                        yield whose, _literal(key)
        case ast.Call(func=function, args=[owner, key, *_]) if dotted(function) in _SETTERS:
            yield owner, _literal(key)
        case ast.Call(func=ast.Attribute(value=table, attr="update")) if whose := _owner_of(table):
            yield whose, None


def _owner_of(table: ast.expr) -> ast.expr | None:
    """Return what a table is the attributes of: ``vars(owner)``, ``owner.__dict__``."""
    match table:
        case (
            ast.Call(func=ast.Name(id="vars"), args=[owner])
            | ast.Attribute(value=owner, attr="__dict__")
        ):
            return owner
        case _:
            return None


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _first_name(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _is_parameter(name: str, scope: CodeScope) -> bool:
    sources = (local_names(one.node).get(name) for one in scope.in_function())
    return any(isinstance(source, Parameter) for one in sources if one for source in one)


def _written_owners(owner: ast.expr, scope: CodeScope) -> Iterator[str]:
    """Yield the last name of what is written to; of a parameter, those of what such a function is given."""
    if not _is_parameter(_first_name(owner), scope):
        yield _last_name(owner)
        return
    *inner, module = (around.node for around in scope.around())
    functions = {getattr(node, "name", "") for node in inner} - {""}
    for call in (node for node in every(module) if isinstance(node, ast.Call)):
        if _last_name(call.func) in functions:
            yield from map(_last_name, call.args)


def _last_name(node: ast.expr) -> str:
    return (dotted(node) or "").rpartition(".")[2]
