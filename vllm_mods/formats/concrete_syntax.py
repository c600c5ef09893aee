"""Python as LibCST reads it, whose grammar is not that of the interpreter. LibCST is imported here only.

It is the second reader: of what this interpreter's ``ast`` cannot read, and under ``matrix --strict`` of every file. Its import takes 145 ms, and take it ten times as long as ``ast``.
"""

import re
import sys
from typing import TYPE_CHECKING

from vllm_mods.base import limits, own_process
from vllm_mods.formats import syntax_tree
from vllm_mods.formats.syntax_tree import Scope

if TYPE_CHECKING:
    import libcst


class UnparsableError(Exception):
    """The file is not Python that can be read, or not to the byte."""


_TRIAL = __name__
# Whatever can stand in another: what has fewer of these in all is not nested deeply.
_NESTS = re.compile(
    rb"[(\[{~+*/%@&|^<>=.:!-]|\b(?:not|lambda|await|if|else|elif|and|or|for|in|is|yield|from|while|with|try)\b"
)
_FEW = 800


def read_definitions(data: bytes) -> tuple[Scope, ...]:
    """Return the classes and functions of a file, outer ones first. Raises ``UnparsableError`` with the reason."""
    import libcst  # noqa: PLC0415

    _check_depth(data)
    try:
        return _read(libcst.parse_module(data), data)
    except libcst.ParserSyntaxError as error:
        raise UnparsableError(f"line {error.raw_line}: {error.message}") from error
    except (SyntaxError, UnicodeDecodeError, LookupError, RecursionError) as error:
        raise UnparsableError(str(error)) from error


def _read(module: "libcst.Module", data: bytes) -> tuple[Scope, ...]:
    import libcst  # noqa: PLC0415
    from libcst.metadata import MetadataWrapper, PositionProvider  # noqa: PLC0415

    places = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    named: list[Scope] = []

    def visit(node: libcst.CSTNode, chain: str) -> None:
        inner = chain
        if isinstance(node, libcst.ClassDef | libcst.FunctionDef):
            inner = f"{chain}.{node.name.value}".removeprefix(".")
            kind = "class" if isinstance(node, libcst.ClassDef) else "def"
            start = places[node.decorators[0] if node.decorators else node].start.line
            head, end = places[node.name].start.line, places[node].end.line
            named.append(Scope(kind, inner, start, head, end))
        elif isinstance(node, libcst.BaseExpression | libcst.BaseSmallStatement):
            return  # no class or function statement can be inside
        for child in node.children:
            visit(child, inner)

    visit(module, "")
    # LibCST drops a form feed at the start of a statement: without the round trip to the byte,
    # line numbers are not to be trusted.
    if module.bytes != data:
        raise UnparsableError("LibCST does not reproduce this file byte for byte")
    return tuple(sorted(named, key=lambda scope: (scope.start, -scope.end)))


def _check_depth(data: bytes) -> None:
    """Raise ``UnparsableError`` for what LibCST, which calls itself without limit, would die of."""
    try:
        syntax_tree.check_depth(syntax_tree.module(data) or syntax_tree.parse(data))
    except syntax_tree.DeepError as error:
        raise UnparsableError(error.msg) from error
    except (SyntaxError, ValueError):
        if len(_NESTS.findall(data)) > _FEW:
            _try_elsewhere(data)


def _try_elsewhere(data: bytes) -> None:
    import subprocess  # noqa: PLC0415  (rarely needed)

    command = own_process.command(_TRIAL)
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=limits.TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnparsableError(f"LibCST did not parse it within {limits.TRIAL_SECONDS}") from error
    if done.returncode < 0:
        raise UnparsableError("LibCST crashes on it: it is nested too deeply")


def main() -> None:
    """Parse the standard input, in a process of its own: LibCST may not get out of it alive."""
    import libcst  # noqa: PLC0415

    libcst.parse_module(sys.stdin.buffer.read())
