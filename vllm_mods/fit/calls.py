"""The calls of a name that the tree makes, and of what types their receivers are: the type checker says that."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_mods.fit.checker import check, replaced
from vllm_mods.fit.search import files_mentioning
from vllm_mods.fit.signatures import children
from vllm_mods.fit.walk import CodeScope, sites_with
from vllm_mods.fit.world import World, remembered

# More calls of methods of one name are of a name that is everybody's.
_MOST = 300
_REVEALED = re.compile(r"Revealed type: `(.*)`")


@dataclass(frozen=True, eq=False)
class MethodCall:
    """A call of the tree, and where it stands: ``use`` is the node around it, or what its result is unpacked into."""

    path: str
    node: ast.Call
    scope: CodeScope
    use: ast.AST | None = None

    @property
    def receiver(self) -> ast.expr:
        """What the method is called on; of a plain name that itself."""
        return getattr(self.node.func, "value", self.node.func)


@remembered
def calls_of(
    world: World, method: str, start: bytes = rb"\.", files: frozenset[str] = frozenset()
) -> tuple[MethodCall, ...]:
    """Return every call of methods of a name in some ``files`` or all, found by text first; with ``start`` at a word, of functions and classes too."""
    calls: list[MethodCall] = []
    called = re.compile(start + rb"%b\s*\(" % re.escape(method.encode()))
    for path, data in files_mentioning(world, (method,)):
        uses: dict[ast.AST, ast.AST] = {}
        is_in = path in (files or (path,)) and called.search(data)
        for site in sites_with(data, called) if is_in else ():
            match site.node:
                case ast.Assign(targets=[ast.Tuple() as into], value=value):
                    uses[value.value if isinstance(value, ast.Await) else value] = into
                case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name) as func) as node:
                    if name == method and (isinstance(func, ast.Attribute) or start != rb"\."):
                        calls.append(MethodCall(path, node, site.scope, uses.get(node)))
                case _:
                    pass
            for child in children(site.node):
                uses.setdefault(child, site.node)
    return tuple(calls)


def receiver_types(world: World, calls: tuple[MethodCall, ...]) -> Mapping[MethodCall, str]:
    """Return the types of the receivers of some calls, by ``reveal_type`` on copies of their files; raises as ``checker.check``."""
    known: Mapping[MethodCall, str] = world.answers.get(receiver_types, {})
    if known.keys() >= {*calls}:
        return known
    by_file: dict[str, list[MethodCall]] = defaultdict(list)
    for call in calls[:_MOST]:
        by_file[call.path].append(call)
    revealing = {one: _revealing(world.glance(one) or b"", some) for one, some in by_file.items()}
    folder = world.cache.laid_out.show(world.tree, replaced(), world.files, revealing)
    diagnostics = check(folder, by_file, (), world.python)
    types: dict[tuple[str, int], list[str]] = defaultdict(list)
    for diagnostic in diagnostics:
        if match := _REVEALED.fullmatch(diagnostic.text):
            types[diagnostic.path, diagnostic.line].append(match[1])
    type_of: dict[MethodCall, str] = {}
    for path, some in by_file.items():
        for line in {call.receiver.lineno for call in some}:
            here = [call for call in some if call.receiver.lineno == line]
            here.sort(key=lambda call: call.receiver.col_offset)
            if len(types[path, line]) == len(here):
                type_of.update(zip(here, types[path, line], strict=True))
    return type_of


def _revealing(data: bytes, calls: list[MethodCall]) -> bytes:
    rows = data.splitlines(keepends=True)
    places = []
    for call in calls:
        value = call.receiver
        places.append((value.lineno, value.col_offset, b"reveal_type("))
        places.append((value.end_lineno or 0, value.end_col_offset or 0, b")"))
    for line, column, text in sorted(places, key=lambda place: place[:2], reverse=True):
        row = rows[line - 1]
        rows[line - 1] = row[:column] + text + row[column:]
    return b"".join(rows)
