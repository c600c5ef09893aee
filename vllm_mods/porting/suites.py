"""The statements of a block by their keys, with what stands above them, and compound ones taken apart. Pure."""

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from vllm_mods.base.diff3 import Lines
from vllm_mods.formats.syntax_tree import first_line, suites

_Key = TypeVar("_Key")


class BothChangedError(Exception):
    """Both sides changed one thing, each in its own way."""


class KeyedStatement(NamedTuple):
    """A statement: ``lead`` are the blank lines and comments above it, ``text`` its lines.

    ``start`` is the number of the first line of ``text``, 1-based.
    """

    key: str
    lead: Lines
    text: Lines
    start: int
    node: ast.stmt


Suite = dict[str, KeyedStatement]

_HEADS: dict[type[ast.stmt], tuple[str, ...]] = {
    ast.Assign: ("targets",),
    ast.AnnAssign: ("target",),
    ast.AugAssign: ("target",),
    ast.ImportFrom: ("level", "module"),
    ast.If: ("test",),
    ast.While: ("test",),
    ast.For: ("target", "iter"),
    ast.AsyncFor: ("target", "iter"),
    ast.With: ("items",),
    ast.AsyncWith: ("items",),
    ast.Return: (),
    ast.Raise: (),
    ast.Try: (),
    ast.Match: (),
}
"""What of a statement is its key; of those that are not here, all of it is."""


class Section(NamedTuple):
    """A piece of a compound statement: lines such as ``else:``, and the statements below them."""

    head: Lines
    suite: Suite


def read(nodes: Sequence[ast.stmt], lines: Sequence[bytes], first: int) -> Suite:
    """Read statements, of which the first with what stands above it begins at line ``first``."""
    statements: list[KeyedStatement] = []
    at = first
    for node in nodes:
        start = first_line(node)
        if start < at:
            raise BothChangedError  # on one line with another
        end = node.end_lineno or start
        lead, text = tuple(lines[at - 1 : start - 1]), tuple(lines[start - 1 : end])
        statements.append(KeyedStatement(key(node), lead, text, start, node))
        at = end + 1
    counts, seen = Counter(one.key for one in statements), Counter[str]()
    suite: Suite = {}
    for statement in statements:
        seen[statement.key] += 1
        name = statement.key
        if counts[name] > 1:  # not one of them means the same where there are more or fewer
            name = f"{name} #{seen[name]} of {counts[name]}"
        suite[name] = statement._replace(key=name)
    return suite


def check_order(base: Collection[_Key], *sides: Collection[_Key]) -> None:
    """Raise ``BothChangedError`` where a side has what is left of the base in another order."""
    for side in sides:
        if [key for key in base if key in side] != [key for key in side if key in base]:
            raise BothChangedError


def added(
    base: Collection[_Key], side: Iterable[_Key]
) -> Iterator[tuple[_Key | None, _Key | None, list[_Key]]]:
    """Yield each run of what a side adds, behind the old neighbours of it; None for an end."""
    before: _Key | None = None
    run: list[_Key] = []
    for key in [*side, None]:
        if key is not None and key not in base:
            run.append(key)
            continue
        if run:
            yield before, key, run
        before, run = key, []


def key(node: ast.stmt) -> str:
    """Return what tells a statement from others of its block, whatever is done to the rest of it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return f"def {node.name}"
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        args = node.value.args
        first = args[0].value if args and isinstance(args[0], ast.Constant) else ""
        return f"{ast.unparse(node.value.func)}({first!r}"
    heads = [getattr(node, name) for name in _HEADS.get(type(node), ())]
    if type(node) not in _HEADS:
        return "docstring" if is_text(node) else ast.unparse(node)
    flat = [one for some in heads for one in (some if isinstance(some, list) else [some])]
    words = (ast.unparse(one) if isinstance(one, ast.AST) else str(one) for one in flat)
    kind = "=" if isinstance(node, ast.Assign | ast.AnnAssign) else type(node).__name__
    return f"{kind} {' '.join(words)}"


def is_text(node: ast.stmt) -> bool:
    """Tell whether a statement is a constant alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def parts(statement: KeyedStatement) -> list[Section]:
    """Take a compound statement apart; nothing for any other."""
    lines = [b""] * (statement.start - 1) + list(statement.text)
    blocks = sorted(suites(statement.node), key=lambda block: block[0].lineno)
    parts: list[Section] = []
    at = statement.start
    for block in blocks:
        start = first_line(block[0])
        if start == statement.start or lines[start - 1][: block[0].col_offset].strip():
            return []  # on the line of its head
        while start > at + 1 and lines[start - 2].strip()[:1] in {b"", b"#"}:
            start -= 1  # what is blank or a comment belongs to the block
        parts.append(Section(tuple(lines[at - 1 : start - 1]), read(block, lines, start)))
        at = (block[-1].end_lineno or 0) + 1
    return parts
