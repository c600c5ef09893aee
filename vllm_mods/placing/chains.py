"""The blocks that enclose a line of a Python file: definitions, branches, tables, each by a name. Pure.

A class or function has its own name. A branch has its keyword and condition, ``<if x is None>``, ``<else x is None>``,
``<case 2>``; a statement over several lines that binds, imports or calls has what it binds, imports from or calls,
``_EMBED =``, ``from os import``, ``add_argument("--port")``, and an entry of a dictionary its key, ``["qwen3"]``.
"""

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from vllm_mods.formats import syntax_tree

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_LONGEST = 72
LONE_RETURN = re.compile(rb"\r(?!\n)")
_JOINED = r"^\s*(else|finally)\b"


class CodeBlock(NamedTuple):
    """What stands from its ``head`` line to its ``end`` (1-based), both included.

    ``kind`` is ``class``, ``def``, ``branch`` or ``table``; ``start`` is the line of the first decorator, or the head, ``indent``
    the column of the head, ``chain`` the names of all that encloses it, its own the last.
    """

    kind: str
    name: str
    start: int
    head: int
    end: int
    indent: int
    chain: tuple[str, ...]

    @property
    def named(self) -> bool:
        """Whether its name tells it from its neighbours: a branch's does not."""
        return self.kind != "branch"

    @property
    def defines(self) -> bool:
        """Whether it is a class or a function."""
        return self.kind in {"class", "def"}


# Forwards and backwards, and for every variant, the same files are asked; neighbouring releases share most of them.
@lru_cache(maxsize=64)
def read_blocks(data: bytes) -> tuple[CodeBlock, ...]:
    """Return all blocks of a file, outer ones before those inside them; none where this interpreter's parser cannot read it."""
    tree = syntax_tree.module(data)
    # a return alone ends a line to Python, and none in a patch
    if tree is None or LONE_RETURN.search(data):
        return ()
    blocks = _BlockReader(data).read(tree.body, ())
    return tuple(sorted(blocks, key=lambda block: (block.start, -block.end)))


class SourceLines:
    """The lines of a file in UTF-8, in which ``ast`` counts columns, and how it names a statement."""

    def __init__(self, data: bytes) -> None:
        self.lines = syntax_tree.decoded(data).encode().splitlines()

    def name_of(self, node: ast.stmt) -> str:
        """Return what a statement binds, or imports from, as a name for it; ``""`` for any other."""
        match node:
            case ast.ImportFrom():
                return f"from {'.' * node.level}{node.module or ''} import"
            case ast.Import():
                return f"import {node.names[0].name}"
            case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
                return f"{self.text(target)} ="
            case _:
                return ""

    def text(self, node: ast.expr | ast.pattern) -> str:
        """Return the source of a node on one line, a long one by its beginning and a hash."""
        first, last = node.lineno, node.end_lineno or node.lineno
        rows = self.lines[first - 1 : last]
        rows[-1] = rows[-1][: node.end_col_offset]
        rows[0] = rows[0][node.col_offset :]
        text = b" ".join(b" ".join(rows).split()).decode()
        if len(text) <= _LONGEST:
            return text
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return f"{text[: _LONGEST - 9]}…{digest}"


class _BlockReader(SourceLines):
    """Walks statements, and of expressions only dictionaries."""

    def read(self, body: Sequence[ast.stmt], chain: tuple[str, ...]) -> Iterator[CodeBlock]:
        for node in body:
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    kind = "class" if isinstance(node, ast.ClassDef) else "def"
                    block = self._block(kind, node.name, node.lineno, node, chain)
                    yield block._replace(start=syntax_tree.first_line(node))
                    yield from self.read(node.body, block.chain)
                case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
                    yield from self._branches(node, chain)
                case ast.With() | ast.AsyncWith():
                    text = ", ".join(self.text(item.context_expr) for item in node.items)
                    yield from self._suite("with", text, node.lineno, node.body, chain)
                case ast.Try() | ast.TryStar():
                    yield from self._try(node, chain)
                case ast.Match():
                    for branch in node.cases:
                        head = branch.pattern.lineno
                        text = self.text(branch.pattern)
                        yield from self._suite("case", text, head, branch.body, chain)
                case _ if (node.end_lineno or node.lineno) > node.lineno:
                    yield from self._table(node, chain)

    def _branches(
        self, node: ast.If | ast.For | ast.AsyncFor | ast.While, chain: tuple[str, ...]
    ) -> Iterator[CodeBlock]:
        """Yield the branches of a statement; of an ``if`` with its ``elif``, however many these are."""
        while True:
            if isinstance(node, ast.For | ast.AsyncFor):
                word, text = "for", f"{self.text(node.target)} in {self.text(node.iter)}"
            else:
                word = "if" if isinstance(node, ast.If) else "while"
                text = self.text(node.test)
            yield from self._suite(word, text, node.lineno, node.body, chain)
            if not node.orelse:
                return
            first = node.orelse[0]
            line = self.lines[first.lineno - 1]
            if not (isinstance(first, ast.If) and line[first.col_offset :].startswith(b"elif")):
                yield from self._suite("else", text, self._joined(first), node.orelse, chain)
                return
            node = first

    def _try(self, node: ast.Try | ast.TryStar, chain: tuple[str, ...]) -> Iterator[CodeBlock]:
        yield from self._suite("try", "", node.lineno, node.body, chain)
        for handler in node.handlers:
            text = self.text(handler.type) if handler.type else ""
            yield from self._suite("except", text, handler.lineno, handler.body, chain)
        for word, body in (("else", node.orelse), ("finally", node.finalbody)):
            if body:
                yield from self._suite(word, "", self._joined(body[0]), body, chain)

    def _suite(
        self, word: str, text: str, head: int, body: Sequence[ast.stmt], chain: tuple[str, ...]
    ) -> Iterator[CodeBlock]:
        block = self._block("branch", f"<{f'{word} {text}'.strip()}>", head, body[-1], chain)
        yield block
        yield from self.read(body, block.chain)

    def _table(self, node: ast.stmt, chain: tuple[str, ...]) -> Iterator[CodeBlock]:
        match node:
            case ast.AugAssign():
                name = f"{self.text(node.target)} ="
            case ast.Expr(value=ast.Call() as call):
                first = call.args[0] if call.args else None
                text = self.text(first) if isinstance(first, ast.Constant) else ""
                name = f"{self.text(call.func)}({text})"
            case ast.Return(value=ast.Dict() | ast.List() | ast.Tuple() | ast.Set()):
                name = "return"
            case _:
                name = self.name_of(node)
        if not name:
            return
        block = self._block("table", name, node.lineno, node, chain)
        yield block
        yield from self._entries(getattr(node, "value", None), block.chain)

    def _entries(self, value: ast.expr | None, chain: tuple[str, ...]) -> Iterator[CodeBlock]:
        if not isinstance(value, ast.Dict):
            return
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and (entry.end_lineno or 0) > key.lineno:
                block = self._block("table", f"[{self.text(key)}]", key.lineno, entry, chain)
                yield block
                yield from self._entries(entry, block.chain)

    def _block(
        self, kind: str, name: str, head: int, last: ast.stmt | ast.expr, chain: tuple[str, ...]
    ) -> CodeBlock:
        line = self.lines[head - 1]
        indent = len(line) - len(line.lstrip())
        return CodeBlock(kind, name, head, head, last.end_lineno or head, indent, (*chain, name))

    def _joined(self, first: ast.stmt) -> int:
        """Return the line of the ``else`` or ``finally`` above a suite's first statement."""
        for line in range(syntax_tree.first_line(first), 0, -1):
            if re.match(_JOINED, self.lines[line - 1].decode()):
                return line
        return first.lineno
