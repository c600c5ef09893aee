"""The classes and functions of a Python file, by line, and which of them their names are bound to. Pure.

``ast`` reads them, for a tenth of what LibCST's positions take; LibCST reads what is
not Python of this interpreter's version.

A definition is dead only where nothing could have kept it: a decorator may have put it in a
table, and whatever read the name before it was bound again may have taken it along.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from vllm_mods.formats import syntax_tree
from vllm_mods.formats.concrete_syntax import UnparsableError, read_definitions
from vllm_mods.formats.syntax_tree import Scope
from vllm_mods.placing.chains import LONE_RETURN, CodeBlock, Definition, SourceLines, read_blocks

# They give back what they were given, or something that nobody else holds.
_KEEPS_NOTHING = frozenset(
    (
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager"),
        *("dataclass", "final", "inference_mode", "lru_cache", "no_grad", "override", "property"),
        *("staticmethod", "total_ordering", "wraps"),
    )
)


class Scopes:
    """Every scope of one file, outer ones before the ones inside them; ``definitions`` are its classes and functions."""

    def __init__(self, scopes: tuple[Scope, ...]) -> None:
        self.scopes = scopes
        self.definitions = tuple(scope for scope in scopes if scope.kind != "statement")

    def at(self, line: int) -> str:
        """Return the dotted chain of what encloses a line; ``""`` is bare module level.

        A module-level import or assignment counts by what it imports from or binds
        (``from os.path import``, ``logger =``): that is what anchors a hunk there.
        """
        around = [scope.name for scope in self.scopes if scope.start <= line <= scope.end]
        return around[-1] if around else ""

    def chain(self, lines: Iterable[int]) -> str:
        """Return the distinct scopes that some lines pass through, in order, joined by `` | ``."""
        return " | ".join(dict.fromkeys(map(self.at, lines)))

    def above(self, line: int) -> Scope | None:
        """Return the class or function whose head is the nearest one above a line."""
        above = (scope for scope in self.definitions if scope.head < line)
        return max(above, key=lambda scope: scope.head, default=None)

    def find(self, name: str) -> Scope | None:
        """Return the first class or function with this dotted name, a live one if there is one."""
        named = [scope for scope in self.definitions if scope.name == name]
        return next((scope for scope in named if scope.live), named[0] if named else None)


# Every variant of a mod looks into the same files, and so do neighbouring releases.
@lru_cache(maxsize=256)
def read_scopes(data: bytes) -> Scopes:
    """Read a file. Raises ``UnparsableError`` with the reason."""
    if LONE_RETURN.search(data):
        raise UnparsableError("a carriage return alone ends a line for Python, but not for a patch")
    tree = syntax_tree.module(data)
    if tree is None:
        return read_strictly(data)
    dead: set[Definition] = set()
    try:
        _suite(tree.body, [], dead)
    except RecursionError as error:
        raise UnparsableError(str(error)) from error
    heads = {node.lineno for node in dead}
    scopes = [*_definitions(read_blocks(data), heads), *_statements(tree.body, SourceLines(data))]
    return Scopes(tuple(sorted(scopes, key=lambda scope: (scope.start, -scope.end))))


@lru_cache(maxsize=256)
def long_strings(data: bytes) -> tuple[tuple[int, int], ...]:
    """Return the first and last lines of strings of over two lines; none where ``ast`` cannot read the file."""
    tree = syntax_tree.module(data)
    if tree is None:
        return ()
    strings = (
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.JoinedStr)
        or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
    )
    spans = ((one.lineno, one.end_lineno or one.lineno) for one in strings)
    return tuple((first, last) for first, last in spans if last - first > 1)


@lru_cache(maxsize=32)
def read_strictly(data: bytes) -> Scopes:
    """Read a file by LibCST, all definitions ``live``. Raises ``UnparsableError`` with why."""
    return Scopes(read_definitions(data))


def _definitions(blocks: Sequence[CodeBlock], dead: set[int]) -> Iterator[Scope]:
    """Yield the classes and functions among the blocks of a file; those on the ``dead`` lines, and what is in them, are not live."""
    dead_until = 0
    for block in blocks:
        if block.defines:
            if block.head in dead:
                dead_until = max(dead_until, block.end)
            name = ".".join(name for name in block.chain if not name.startswith("<"))
            live = block.start > dead_until
            yield Scope(block.kind, name, block.start, block.head, block.end, live)


def _statements(body: Sequence[ast.stmt], lines: SourceLines) -> Iterator[Scope]:
    """Yield the statements of the module that bind or import something."""
    for node in body:
        if name := lines.name_of(node):
            yield Scope("statement", name, node.lineno, node.lineno, node.end_lineno or node.lineno)
        for suite in () if isinstance(node, Definition) else syntax_tree.suites(node):
            yield from _statements(suite, lines)


def _suite(
    body: Sequence[ast.stmt], definitions: list[Definition], dead: set[Definition]
) -> frozenset[str]:
    """Return the names that statements bind whenever they run; add their definitions to those given.

    Those that nothing can reach in the end are ``dead``.
    """
    sure: frozenset[str] = frozenset()
    # Where in this suite a name has definitions, in branches or not.
    earlier: dict[str, list[tuple[int, Definition]]] = {}
    for number, node in enumerate(body):
        inner: list[Definition] = []
        bound = _bound(node, inner, dead)
        for name in bound & earlier.keys():
            for at, prior in earlier[name]:
                if not _kept(prior, body[at + 1 : number + 1]):
                    dead.add(prior)
        for definition in inner:
            earlier.setdefault(definition.name, []).append((number, definition))
        definitions += inner
        sure |= bound
    return sure


def _bound(  # noqa: PLR0911  (one kind of statement per branch)
    node: ast.stmt, definitions: list[Definition], dead: set[Definition]
) -> frozenset[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            definitions.append(node)
            _suite(node.body, [], dead)
            return frozenset((node.name,))
        case ast.Import() | ast.ImportFrom():
            names = (one.asname or one.name.partition(".")[0] for one in node.names)
            return frozenset(names) - {"*"}
        case ast.Assign() | ast.Delete():
            return _names(node.targets)
        case ast.AugAssign() | ast.AnnAssign():
            return _names([] if node.value is None else [node.target])
        case ast.If():
            return _suite(node.body, definitions, dead) & _suite(node.orelse, definitions, dead)
        case ast.Try() | ast.TryStar():
            whole = _suite(node.body, definitions, dead) | _suite(node.orelse, definitions, dead)
            caught = [_suite(handler.body, definitions, dead) for handler in node.handlers]
            return whole.intersection(*caught) | _suite(node.finalbody, definitions, dead)
        case _:
            # It may run not at all, or swallow an error: ``with suppress(ImportError)``.
            for suite in syntax_tree.suites(node):
                _suite(suite, definitions, dead)
            targets = [one.optional_vars for one in getattr(node, "items", ())]
            # ``type X = …``, of Python 3.12
            return _names(filter(None, (*targets, getattr(node, "name", None))))


def _names(targets: Iterable[ast.expr]) -> frozenset[str]:
    return frozenset(name for target in targets for name in syntax_tree.target_names(target))


def _kept(definition: Definition, later: Sequence[ast.stmt]) -> bool:
    """Tell whether something may hold a definition whose name the last statement binds again."""
    called = (ast.unparse(one).partition("(")[0] for one in definition.decorator_list)
    if any(name.rpartition(".")[2] not in _KEEPS_NOTHING for name in called):
        return True  # ``overload`` among them: a stub is no dead definition
    return any(_reads(node, definition.name) for node in later)


def _reads(node: ast.AST, name: str) -> bool:
    """Tell whether a name is read when a statement runs: not in the bodies of functions."""
    stack: list[ast.AST] = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.AugAssign) and name in _names([node.target]):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            stack += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif not isinstance(node, ast.Lambda):
            stack += ast.iter_child_nodes(node)
    return False
