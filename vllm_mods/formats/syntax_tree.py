"""Python that anybody may have written, as ``ast`` has it: parsed, or refused with one kind of error. Pure."""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from vllm_mods.base import limits

TOO_DEEP = "it is nested too deeply to be read"
_CODING = re.compile(rb"coding[:=]")


class Scope(NamedTuple):
    """A class, a function, or a named statement of the module, from ``start`` to ``end`` (1-based).

    ``start`` is the line of the first decorator, ``head`` that of the ``class`` or ``def`` keyword. A definition is not
    ``live`` if its name, or that of a scope around it, is surely bound again later and nothing has used it by then.
    """

    kind: str
    name: str
    start: int
    head: int
    end: int
    live: bool = True


class DeepError(SyntaxError):
    """The source is nested more deeply than it can be read."""

    def __init__(self) -> None:
        super().__init__(TOO_DEEP)


def parse(source: bytes | str, **options: Any) -> Any:  # noqa: ANN401  (as ``ast.parse`` has it)
    """Parse, never run, with options of ``ast.parse``. Raises ``SyntaxError`` or ``ValueError``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in somebody else's file are no news
        try:
            return ast.parse(source, **options)
        except (RecursionError, MemoryError) as error:
            raise DeepError from error


# Scopes, summaries and every check of the fit read the same few files.
@lru_cache(maxsize=32)
def module(data: bytes) -> ast.Module | None:
    """Parse a file; ``None`` if it is not Python that this interpreter reads.

    Whoever asks for the same bytes gets the same tree: nobody may change it.
    """
    try:
        parsed: ast.Module = parse(decoded(data))  # of bytes, it takes any in a comment
    except (SyntaxError, ValueError):
        return None
    return parsed


def decoded(data: bytes) -> str:
    """Return a file's text, without a byte-order mark. Raises ``SyntaxError`` or ``UnicodeDecodeError``."""
    encoding = "utf-8-sig"
    if any(map(_CODING.search, data.split(b"\n", 2)[:2])):
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return data.decode(encoding)


def first_line(node: ast.stmt) -> int:
    """Return the line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def suites(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a compound statement."""
    for holder in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            if suite := getattr(holder, name, None):
                yield suite


def all_statements(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of a module, whatever they stand in."""
    found = [*tree.body]
    for node in found:
        for suite in suites(node):
            found += suite
    return found


def target_names(target: ast.expr | None) -> Iterator[str]:
    """Yield the plain names that an assignment target binds, if there is one."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from target_names(element)
    elif isinstance(target, ast.Starred):
        yield from target_names(target.value)


def with_defaults(args: ast.arguments) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters that may be given by their place, each with its default."""
    plain = [*args.posonlyargs, *args.args]
    required = len(plain) - len(args.defaults)
    return [*zip(plain, [*[None] * required, *args.defaults], strict=True)]


def check_depth(tree: ast.AST) -> None:
    """Raise ``DeepError`` for a tree that something that calls itself might not get out of."""
    level = [tree]
    depth = 0
    while level:
        depth += 1
        if depth > limits.PYTHON_NESTING or max(map(_width, level)) > limits.PYTHON_OPERANDS:
            raise DeepError
        level = [child for node in level for child in ast.iter_child_nodes(node)]


def _width(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").count(".")
    return node.name.count(".") if isinstance(node, ast.alias) else 0
