"""What encloses each line of a file, and edits of its lines: what ``lookalike.py`` holds the planner to.

Read with ``ast`` and by itself: nothing here is the planner's.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base import line_diff
from vllm_mods.formats import syntax_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

Chain = tuple[str, ...]
BRANCHES = (
    "<if ",
    "<else of ",
    "<try>",
    "<except ",
    "<finally>",
    "<case ",
    "<for ",
    "<while ",
    "<with ",
    "<async ",
)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Places:
    """The chain of what encloses each line of a file: ``("A", "f", "<if x>")``."""

    def __init__(self, data: bytes, module: ast.Module) -> None:
        self.lines = line_diff.split(data)
        self.chains: list[Chain] = [()] * (len(self.lines) + 2)
        self.spans: dict[Chain, int] = {(): 1}
        self.statements: set[int] = set()
        self._suite(module.body, ())

    def _paint(self, first: int, last: int, chain: Chain) -> None:
        self.spans.setdefault(chain, first)
        self.chains[first : last + 1] = [chain] * (last + 1 - first)

    def _suite(self, body: Sequence[ast.stmt], chain: Chain) -> None:
        names = [node.name for node in body if isinstance(node, Definition)]
        for node in body:
            self.statements.add(node.lineno)
            last = node.end_lineno or node.lineno
            if isinstance(node, Definition):
                marks = node.decorator_list if names.count(node.name) > 1 else []
                name = " ".join((node.name, *(ast.unparse(mark) for mark in marks)))
                self._paint(syntax_tree.first_line(node), last, (*chain, name))
                self._suite(node.body, (*chain, name))
            elif last > node.lineno:
                self._compound(node, chain)

    def _compound(self, node: ast.stmt, chain: Chain) -> None:  # noqa: C901  (a case per kind)
        last = node.end_lineno or node.lineno
        match node:
            case ast.If(test, body, orelse):
                self._branch(f"<if {ast.unparse(test)}>", node.lineno, body, chain)
                if orelse and not self._is_elif(orelse[0]):
                    start = (body[-1].end_lineno or 0) + 1
                    self._branch(f"<else of {ast.unparse(test)}>", start, orelse, chain)
                else:
                    self._suite(orelse, chain)
            case ast.Try(body, handlers, orelse, finalbody):
                self._branch("<try>", node.lineno, body, chain)
                for handler in handlers:
                    label = f"<except {ast.unparse(handler.type) if handler.type else ''}>"
                    self._branch(label, handler.lineno, handler.body, chain)
                self._suite(orelse, chain)
                if finalbody:
                    self._branch("<finally>", finalbody[0].lineno, finalbody, chain)
            case ast.Match(_, cases):
                for case in cases:
                    label = f"<case {ast.unparse(case.pattern)}>"
                    self._branch(label, case.pattern.lineno, case.body, chain)
            case ast.For() | ast.AsyncFor() | ast.While() | ast.With() | ast.AsyncWith():
                label = ast.unparse(node).partition("\n")[0]
                self._branch(f"<{label}>", node.lineno, node.body, chain)
                self._suite(getattr(node, "orelse", []), chain)
            case ast.ImportFrom():
                self._paint(node.lineno, last, (*chain, f"<from {node.module} import>"))
            case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
                label = f"<{ast.unparse(target)} =>"
                self._paint(node.lineno, last, (*chain, label))
                self._expression(node, (*chain, label))
            case _:
                self._expression(node, chain)

    def _branch(self, label: str, first: int, body: Sequence[ast.stmt], chain: Chain) -> None:
        self._paint(first, body[-1].end_lineno or first, (*chain, label))
        self._suite(body, (*chain, label))

    def _is_elif(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and self.lines[node.lineno - 1].lstrip().startswith(b"elif")

    def _expression(self, node: ast.AST, chain: Chain) -> None:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                label = f"<{ast.unparse(key)[:40]}:>" if key else "<**>"
                self._part(key or value, value, (*chain, label))
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                self._part(child, child.value, (*chain, f"<{child.arg}=>"))
            elif isinstance(child, ast.Call):
                first = child.args[0] if child.args else None
                shown = ast.unparse(first) if isinstance(first, ast.Constant) else ""
                label = f"<{ast.unparse(child.func)[-40:]}({shown[:40]}>"
                self._part(child, child, (*chain, label))
            elif getattr(child, "end_lineno", 0) != getattr(child, "lineno", 0):
                self._expression(child, chain)

    def _part(self, start: ast.expr | ast.keyword, value: ast.expr, chain: Chain) -> None:
        last = value.end_lineno or value.lineno
        if last > start.lineno:
            self._paint(start.lineno, last, chain)
            self._expression(value, chain)

    def has(self, chain: Chain) -> bool:
        """Tell whether there is a class or function of this name, whatever branch it is in."""
        return any(home(other) == chain for other in self.spans)

    def at(self, index: int) -> Chain:
        """Return the chain of a line by its index."""
        return self.chains[index + 1]


@lru_cache(maxsize=24)
def places(data: bytes) -> Places | None:
    """Read a file; None for what is no Python, or splits lines as patches do not."""
    if b"\x0c" in data or b"\r" in data:
        return None
    module = syntax_tree.module(data)
    return None if module is None else Places(data, module)


def home(chain: Chain) -> Chain:
    """Return the classes and functions of a chain."""
    return tuple(label for label in chain if not label.startswith("<"))


def changed_in(before: Places, after: Places, *, slid: bool = False) -> dict[Chain, int]:
    """Return the places of ``before`` that a change is in, each with an index there.

    What the change adds counts by what was around it. Of an addition that a diff may put higher up, with
    the same result, ``slid`` takes the highest place.
    """
    chains_at: dict[Chain, int] = {}
    for i, j, k, n in line_diff.changes(before.lines, after.lines):
        while slid and i == j and k and after.lines[k - 1] == after.lines[n - 1]:
            i, j, k, n = i - 1, j - 1, k - 1, n - 1  # noqa: PLW2901
        chains = [before.at(x) for x in range(i, j) if before.lines[x].strip()]
        chains += [after.at(x) for x in range(k, n) if after.lines[x].strip()]
        for chain in chains:
            while chain not in before.spans:
                chain = chain[:-1]  # noqa: PLW2901
            chains_at.setdefault(chain, i)
    return chains_at


def shape(chain: Chain) -> str:
    """Say in a word what a place is."""
    last = chain[-1] if chain else ""
    if last.endswith("import>"):
        return "import"
    if last.startswith("<"):
        return "branch" if last.startswith(BRANCHES) else "table or call"
    return "class or function" if last else "module"


def shown(chain: Chain) -> str:
    """Name a place for a person."""
    return ".".join(chain) or "<module>"


class Edit(NamedTuple):
    """Lines that take the place of ``removed`` lines at an index."""

    at: int
    removed: int
    added: tuple[bytes, ...]


def edited(lines: Sequence[bytes], edits: Sequence[Edit]) -> bytes:
    """Return a file with edits made, which are in their order."""
    out: list[bytes] = []
    at = 0
    for edit in edits:
        out += [*lines[at : edit.at], *edit.added]
        at = edit.at + edit.removed
    return b"".join([*out, *lines[at:]])


def window(
    lines: Sequence[bytes], edits: Sequence[Edit], context: int, *, new: bool = False
) -> bytes:
    """Return the text of a hunk before its edits, or after them."""
    first, end = edits[0].at, edits[-1].at + edits[-1].removed
    inner = [edit._replace(at=edit.at - first) for edit in edits]
    middle = edited(lines[first:end], inner) if new else b"".join(lines[first:end])
    above, below = lines[max(0, first - context) : first], lines[end : end + context]
    return b"".join([*above, middle, *below])


def grouped(edits: Sequence[Edit], context: int) -> list[list[Edit]]:
    """Put edits together whose context touches: a hunk each."""
    groups: list[list[Edit]] = []
    for edit in edits:
        last = groups[-1][-1] if groups else None
        if last and edit.at - last.at - last.removed <= 2 * context:
            groups[-1].append(edit)
        else:
            groups.append([edit])
    return groups
