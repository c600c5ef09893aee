"""The classes and functions of a Python file, by line. LibCST is imported here only.

LibCST rather than ``ast``: it reads the syntax of every Python that vLLM supports,
whatever Python runs this tool, and it knows decorators and comments as part of
what they belong to. Its import takes a quarter of a second, so callers ask only
for files that mod.lock does not vouch for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods import syntax_tree

if TYPE_CHECKING:
    from collections.abc import Iterable


class UnparsableError(Exception):
    """The file is not Python that LibCST can read, or not to the byte."""


class Scope(NamedTuple):
    """A class, a function, or a named statement of the module, from ``start`` to ``end`` (1-based).

    ``head`` is the line of the ``class`` or ``def`` keyword, below any decorators.
    """

    kind: str
    name: str
    start: int
    head: int
    end: int
    live: bool = True


class Scopes(NamedTuple):
    """Every scope of one file, outer ones before the ones inside them."""

    scopes: tuple[Scope, ...]

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
        seen: dict[str, None] = {}
        for line in lines:
            seen[self.at(line)] = None
        return " | ".join(seen)

    def above(self, line: int) -> Scope | None:
        """Return the class or function whose head is the nearest one above a line."""
        heads = [scope for scope in self.definitions() if scope.head < line]
        return max(heads, key=lambda scope: scope.head, default=None)

    def definitions(self) -> tuple[Scope, ...]:
        """Return the classes and functions only."""
        return tuple(scope for scope in self.scopes if scope.kind != "statement")

    def find(self, name: str) -> Scope | None:
        """Return the class or function with this dotted name."""
        return next((scope for scope in self.definitions() if scope.name == name), None)


# Reads what this interpreter cannot, to see whether LibCST gets out of it alive.
_TRIAL = "import sys; sys.path[:] = sys.argv[1:]; import libcst; libcst.parse_module(sys.stdin.buffer.read())"
_TRIAL_SECONDS = 30
# Whatever can stand in another: what has fewer of these in all is not nested deeply.
_NESTS = re.compile(
    rb"[(\[{~+*/%@&|^<>=.:!-]|\b(?:not|lambda|await|if|else|elif|and|or|for|in|is|yield|from|while|with|try)\b"
)
_FEW = 800


# Every variant of a mod looks into the same files, and so do neighbouring releases.
@lru_cache(maxsize=32)
def read_scopes(data: bytes) -> Scopes:
    """Parse a file. Raises ``UnparsableError`` with the reason."""
    _check_depth(data)
    try:
        return _read(data)
    except RecursionError as error:
        raise UnparsableError(str(error)) from error


def _read(data: bytes) -> Scopes:  # noqa: C901  (libcst is imported inside)
    import libcst  # noqa: PLC0415
    from libcst.metadata import MetadataWrapper, PositionProvider  # noqa: PLC0415

    try:
        module = libcst.parse_module(data)
    except libcst.ParserSyntaxError as error:
        message = f"line {error.raw_line}: {error.message}"
        raise UnparsableError(message) from error
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise UnparsableError(str(error)) from error
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    places = wrapper.resolve(PositionProvider)
    found: list[Scope] = []

    def visit(node: libcst.CSTNode, chain: str) -> None:
        inner = chain
        if isinstance(node, libcst.ClassDef | libcst.FunctionDef):
            inner = f"{chain}.{node.name.value}" if chain else node.name.value
            first = node.decorators[0] if node.decorators else node
            found.append(
                Scope(
                    kind="class" if isinstance(node, libcst.ClassDef) else "def",
                    name=inner,
                    start=places[first].start.line,
                    head=places[node.name].start.line,
                    end=places[node].end.line,
                )
            )
        elif isinstance(node, libcst.SimpleStatementLine) and not chain:
            if label := _label(module, node.body[0]):
                place = places[node]
                found.append(
                    Scope(
                        kind="statement",
                        name=label,
                        start=place.start.line,
                        head=place.start.line,
                        end=place.end.line,
                    )
                )
            return
        elif isinstance(node, libcst.BaseExpression | libcst.BaseSmallStatement):
            return  # no class or function statement can be inside
        for child in node.children:
            visit(child, inner)

    def _label(module: libcst.Module, statement: libcst.CSTNode) -> str:
        if isinstance(statement, libcst.ImportFrom):
            dots = "." * len(statement.relative)
            source = module.code_for_node(statement.module) if statement.module else ""
            return f"from {dots}{source} import"
        if isinstance(statement, libcst.Import):
            return f"import {module.code_for_node(statement.names[0].name)}"
        if isinstance(statement, libcst.Assign):
            return f"{module.code_for_node(statement.targets[0].target)} ="
        if isinstance(statement, libcst.AnnAssign):
            return f"{module.code_for_node(statement.target)} ="
        return ""

    visit(module, "")
    # LibCST drops a form feed at the start of a statement: without the round trip to the byte,
    # line numbers are not to be trusted.
    if module.bytes != data:
        message = "LibCST does not give this file back byte for byte"
        raise UnparsableError(message)
    found.sort(key=lambda scope: (scope.start, -scope.end))
    return Scopes(scopes=tuple(found))


def _check_depth(data: bytes) -> None:
    """Raise ``UnparsableError`` for what LibCST, which calls itself without limit, would die of.

    For what is no Python of this interpreter's version, another process tries.
    """
    try:
        syntax_tree.check_depth(syntax_tree.parse(data))
    except syntax_tree.DeepError as error:
        raise UnparsableError(error.msg) from error
    except (SyntaxError, ValueError):
        if len(_NESTS.findall(data)) > _FEW:
            _try_elsewhere(data)


def _try_elsewhere(data: bytes) -> None:
    import subprocess  # noqa: PLC0415  (rarely needed)
    import sys  # noqa: PLC0415

    command = [sys.executable, "-P", "-c", _TRIAL, *(place for place in sys.path if place)]
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=_TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        message = f"LibCST has not read it after {_TRIAL_SECONDS} seconds"
        raise UnparsableError(message) from error
    if done.returncode < 0:
        message = "LibCST dies of it: it is nested too deeply"
        raise UnparsableError(message)
