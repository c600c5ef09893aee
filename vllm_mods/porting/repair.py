"""What fit finds wrong with a port and one thing alone puts right. Never without saying so.

A method of the mod that overrides one of the tree, which has got optional parameters since: the override
gets them too, and passes them on to what it overrides. What it does with them is for a person to say.
"""

import ast
from collections.abc import Iterator, Sequence
from inspect import Parameter
from typing import NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding
from vllm_mods.base.tree import Tree
from vllm_mods.fit.overrides import Override, overrides_of
from vllm_mods.fit.search import classes_in
from vllm_mods.fit.world import SummaryCache, World
from vllm_mods.formats import syntax_tree

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_End = tuple[int, int]
"""The line and the column (in bytes) where a node ends."""


class Repair(NamedTuple):
    """Files as they are repaired, and what was done, in words."""

    cuts: tuple[FileChange, ...]
    notes: tuple[str, ...]


def overrides(
    cuts: Sequence[FileChange], findings: Sequence[Finding], base: Tree, target: Tree
) -> Repair:
    """Give overrides the optional parameters that what they override has got since the base.

    Nothing is done where a parameter has no plain default, or the override did not have all of the
    base's. Raises ``TreeError`` for a tree that cannot be read.
    """
    cache = SummaryCache()
    after = World(target, {cut.path: cut.after for cut in cuts}, cache)
    before = World(base, {}, cache)
    notes: list[str] = []
    edited: list[FileChange] = []
    for cut in cuts:
        data = cut.after
        for finding in findings:
            if finding.path != cut.path or finding.code != FindingCode.FIT_OVERRIDE or data is None:
                continue
            for override in _overrides(after, cut.path, finding.scope or ""):
                new = _new_parameters(before, after, override)
                repaired = _add(data, override, new) if new else None
                if repaired is not None:
                    data = repaired
                    names = ", ".join(f"{name}={default}" for name, default in new)
                    what = f"{override.owner.cls.name}.{override.method.name}"
                    notes.append(f"{what} now takes {names}, as in {override.base.cls.name}")
        edited.append(cut._replace(after=data))
    return Repair(tuple(edited), tuple(notes))


def _overrides(world: World, path: str, scope: str) -> Iterator[Override]:
    owner, _, method = scope.rpartition(".")
    for name, symbol in classes_in(world, path):
        if name == owner:
            yield from overrides_of(world, symbol, frozenset((method,)))


def _new_parameters(before: World, after: World, override: Override) -> list[tuple[str, str]]:
    """Return the parameters, with their defaults, that the target's method has and the base's had not."""
    base = override.base
    classes = (found.cls for name, found in classes_in(before, base.path) if name == base.cls.name)
    then = next((cls.methods.get(override.method.name) for cls in classes), None)
    old = {parameter.name for parameter in then[0].parameters} if then and len(then) == 1 else None
    mine = {parameter.name for parameter in override.method.parameters}
    if old is None or not old <= mine:
        return []
    new = [one for one in override.overridden.parameters if one.name not in {*old, *mine}]
    node = _definition(after.read(override.base.path) or b"", override.overridden.line)
    defaults = {} if node is None else _defaults(node)
    if any(one.kind not in _NAMED or one.name not in defaults for one in new):
        return []
    return [(parameter.name, defaults[parameter.name]) for parameter in new]


def _definition(data: bytes, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    module = syntax_tree.module(data)
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno == line:
            return node
    return None


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    """Return the defaults that mean the same wherever they stand."""
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    pairs = [*syntax_tree.with_defaults(node.args), *named]
    return {arg.arg: ast.unparse(one) for arg, one in pairs if isinstance(one, ast.Constant)}


def _add(data: bytes, override: Override, new: Sequence[tuple[str, str]]) -> bytes | None:
    """Put parameters where what is overridden has them, into calls of ``super()`` by name."""
    node = _definition(data, override.method.line)
    if node is None or node.args.vararg or node.args.kwarg or node.args.kwonlyargs:
        return None
    # its default belongs to a parameter
    ends = {arg.arg: _end(default or arg) for arg, default in syntax_tree.with_defaults(node.args)}
    inserts: dict[_End, str] = {}
    last: _End | None = None
    for name in (parameter.name for parameter in override.overridden.parameters):
        last = ends.get(name, last)
        default = dict(new).get(name)
        if default is not None:
            if last is None:
                return None
            inserts[last] = f"{inserts.get(last, '')}, {name}={default}"
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == f"super().{node.name}"):
            continue
        given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        if not given or any(isinstance(arg, ast.Starred) for arg in call.args):
            return None
        inserts[_end(given[-1])] = "".join(f", {name}={name}" for name, _ in new)
    lines = list(line_diff.split(data))
    for (line, column), text in sorted(inserts.items(), reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:column] + text.encode() + row[column:]
    return b"".join(lines)


def _end(node: ast.expr | ast.arg | ast.keyword) -> _End:
    return node.end_lineno or 0, node.end_col_offset or 0
