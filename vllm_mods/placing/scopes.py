"""The classes and functions of a Python file, by line, and which of them their names are bound to. Pure.

``ast`` reads them, for a tenth of what LibCST's positions take; LibCST reads what is
not Python of this interpreter's version.

A definition is dead only where nothing could have kept it: a decorator may have put it in a
table, and whatever read the name before it was bound again may have taken it along.
"""

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from vllm_mods.formats import syntax_tree
from vllm_mods.formats.concrete_syntax import UnparsableError, read_places
from vllm_mods.placing.chains import LONE_RETURN

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# They give back what they were given, or something that nobody else holds.
_KEEPS_NOTHING = frozenset(
    (
        *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager"),
        *("dataclass", "final", "inference_mode", "lru_cache", "no_grad", "override", "property"),
        *("staticmethod", "total_ordering", "wraps"),
    )
)


class Scope(NamedTuple):
    """A class, a function, or a named statement of the module, from ``start`` to ``end`` (1-based).

    ``start`` is the line of the first decorator, ``head`` that of the ``class`` or ``def`` keyword.
    A definition is not ``live`` if its name, or that of a scope around it, is surely bound again
    later and nothing has used it by then.
    """

    kind: str
    name: str
    start: int
    head: int
    end: int
    live: bool = True


class Scopes:
    """Every scope of one file, outer ones before the ones inside them; ``definitions`` are its classes and functions."""

    def __init__(self, scopes: tuple[Scope, ...]) -> None:
        self.scopes = scopes
        self.definitions = tuple(scope for scope in scopes if scope.kind != "statement")
        self._by_head = sorted(self.definitions, key=lambda scope: scope.head)

    def at(self, line: int) -> str:
        """Return the dotted chain of what encloses a line; ``""`` is bare module level.

        A module-level import or assignment counts by what it imports from or binds
        (``from os.path import``, ``logger =``): that is what anchors a hunk there.
        """
        before = bisect_right(self.scopes, line, key=lambda scope: scope.start)
        inner_first = (self.scopes[i] for i in range(before - 1, -1, -1))
        return next((scope.name for scope in inner_first if line <= scope.end), "")

    def chain(self, lines: Iterable[int]) -> str:
        """Return the distinct scopes that some lines pass through, in order, joined by `` | ``."""
        return " | ".join(dict.fromkeys(map(self.at, lines)))

    def above(self, line: int) -> Scope | None:
        """Return the class or function whose head is the nearest one above a line."""
        before = bisect_left(self._by_head, line, key=lambda scope: scope.head)
        return self._by_head[before - 1] if before else None

    def find(self, name: str) -> Scope | None:
        """Return the first class or function with this dotted name, a live one if there is one."""
        named = [scope for scope in self.definitions if scope.name == name]
        return next((scope for scope in named if scope.live), named[0] if named else None)


# Every variant of a mod looks into the same files, and so do neighbouring releases.
@lru_cache(maxsize=256)
def read_scopes(data: bytes) -> Scopes:
    """Read a file. Raises ``UnparsableError`` with the reason."""
    try:
        tree = syntax_tree.module(data) or syntax_tree.parse(data)
        scopes = sorted(_Reader(data).read(tree), key=lambda scope: (scope.start, -scope.end))
        return Scopes(_by_line_feeds(tuple(scopes), data))
    except (RecursionError, syntax_tree.DeepError) as error:
        raise UnparsableError(str(error)) from error
    except (SyntaxError, ValueError):
        return read_strictly(data)


@lru_cache(maxsize=32)
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
    return Scopes(_by_line_feeds(tuple(Scope(*place) for place in read_places(data)), data))


def _by_line_feeds(scopes: tuple[Scope, ...], data: bytes) -> tuple[Scope, ...]:
    """Count lines as a patch does, for which a carriage return alone ends none."""
    if not LONE_RETURN.search(data):
        return scopes
    ends = (line.endswith(b"\n") for line in data.splitlines(keepends=True))
    at = [0, 1, *(1 + feeds for feeds in accumulate(ends))]
    return tuple(
        one._replace(start=at[one.start], head=at[one.head], end=at[one.end]) for one in scopes
    )


_SPACE = rb"(?:[ \t\f]|\\\r?\n|\\\r)*"
_SEMICOLON = re.compile(_SPACE + rb";" + _SPACE)
_CLOSING = re.compile(rb"(?:\s|\\|#[^\r\n]*|\))*\)")


class _Reader:
    """The scopes of one file; positions of ``ast`` are columns of UTF-8, whatever the file is in."""

    def __init__(self, data: bytes) -> None:
        self.lines = syntax_tree.decoded(data).encode().splitlines(keepends=True)

    def read(self, module: ast.Module) -> Iterator[Scope]:
        yield from self._suite(module.body, "", _dead_definitions(module.body), live=True)

    def _suite(
        self, body: Sequence[ast.stmt], chain: str, dead: frozenset[Definition], *, live: bool
    ) -> Iterator[Scope]:
        if not chain:
            yield from self._statements(body)
        for node in body:
            if not isinstance(node, Definition):
                for inner in syntax_tree.suites(node):
                    yield from self._suite(inner, chain, dead, live=live)
                continue
            name = f"{chain}.{node.name}" if chain else node.name
            alive = live and node not in dead
            yield Scope(
                kind="class" if isinstance(node, ast.ClassDef) else "def",
                name=name,
                start=self._start(node),
                head=node.lineno,
                end=node.end_lineno or node.lineno,
                live=alive,
            )
            yield from self._suite(node.body, name, _dead_definitions(node.body), live=alive)

    def _start(self, node: Definition) -> int:
        line = syntax_tree.first_line(node)
        if node.decorator_list:
            while line > 1 and not self.lines[line - 1].lstrip().startswith(b"@"):
                line -= 1  # ``@(``, and what it is about on a line below
        return line

    def _statements(self, body: Sequence[ast.stmt]) -> Iterator[Scope]:
        """Yield the named statements of a suite of the module, one for each logical line."""
        if not body or self._follows_colon(body[0]):
            return
        lines: list[list[ast.stmt]] = []
        for node in body:
            if lines and self._same_line(lines[-1][-1], node):
                lines[-1].append(node)
            else:
                lines.append([node])
        for line in lines:
            if label := self._label(line[0]):
                start, end = line[0].lineno, line[-1].end_lineno or line[-1].lineno
                yield Scope("statement", label, start, start, end)

    def _follows_colon(self, node: ast.stmt) -> bool:
        """Tell whether a suite stands on the line of what it belongs to: ``if x: y = 1``."""
        if self.lines[node.lineno - 1][: node.col_offset].strip():
            return True
        above = self.lines[node.lineno - 2].rstrip(b"\r\n") if node.lineno > 1 else b""
        return above.endswith(b"\\") and b"#" not in above

    def _same_line(self, before: ast.stmt, node: ast.stmt) -> bool:
        line, column = before.end_lineno or 0, before.end_col_offset or 0
        if b";" not in self.lines[line - 1][column:]:
            return False
        between = self._text(line, column, node.lineno, node.col_offset)
        return _SEMICOLON.fullmatch(between) is not None

    def _label(self, node: ast.stmt) -> str:
        match node:
            case ast.ImportFrom():
                return f"from {'.' * node.level}{node.module or ''} import"
            case ast.Import():
                return f"import {node.names[0].name}"
            case ast.Assign():
                return f"{self._target(node, node.targets[0])} ="
            case ast.AnnAssign():
                return f"{self._target(node, node.target)} ="
            case _:
                return ""

    def _target(self, node: ast.stmt, target: ast.expr) -> str:
        line, column = target.end_lineno or 0, target.end_col_offset or 0
        text = self._text(node.lineno, node.col_offset, line, column)
        if (node.lineno, node.col_offset) != (target.lineno, target.col_offset):
            after = self.lines[line - 1][column:] + b"".join(self.lines[line:][:100])
            if closing := _CLOSING.match(after):
                text += closing[0]
        return text.decode(errors="surrogateescape")

    def _text(self, line: int, column: int, end_line: int, end_column: int) -> bytes:
        if line == end_line:
            return self.lines[line - 1][column:end_column]
        inner = self.lines[line : end_line - 1]
        head, tail = self.lines[line - 1][column:], self.lines[end_line - 1][:end_column]
        return b"".join((head, *inner, tail))


def _dead_definitions(body: Sequence[ast.stmt]) -> frozenset[Definition]:
    """Return the definitions of a scope, those in branches included, that nothing can reach in the end."""
    dead: set[Definition] = set()
    _suite(body, [], dead)
    return frozenset(dead)


def _suite(
    body: Sequence[ast.stmt], definitions: list[Definition], dead: set[Definition]
) -> frozenset[str]:
    """Return the names that statements bind whenever they run; add their definitions to those given."""
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
    names = set()
    stack = list(targets)
    while stack:
        target = stack.pop()
        if isinstance(target, ast.Name):
            names.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            stack += target.elts
        elif isinstance(target, ast.Starred):
            stack.append(target.value)
    return frozenset(names)


def _kept(definition: Definition, later: Sequence[ast.stmt]) -> bool:
    """Tell whether something may hold a definition whose name the last statement binds again."""
    if any(_last_word(one) not in _KEEPS_NOTHING for one in definition.decorator_list):
        return True  # ``overload`` among them: a stub is no dead definition
    return any(_reads(node, definition.name) for node in later)


def _last_word(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""


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
