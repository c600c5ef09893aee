"""Marks the places of a Python program at which it goes over entries: lists, loops, rows of calls.

A recording runs this in its sandbox, beside ``entries``, so it shares nothing with the package.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from typing import Any

MARKS = AT, ON, CALLED = "__vllm_mods_at__", "__vllm_mods_on__", "__vllm_mods_called__"
_WRITES = {
    *("write_text", "write_bytes", "write", "writelines", "replace", "rename", "copy", "copy2", "copyfile"),
    *("copytree", "unlink", "remove", "run", "check_call", "check_output", "call", "system", "sub", "subn"),
}  # fmt: skip


class Marker(ast.NodeTransformer):
    """Marks the places of one file; nothing inside of a marked list is a place."""

    def __init__(self, tree: ast.Module, label: str) -> None:
        self._label = label
        own = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        self._own = {node.name for node in own}
        self._own |= {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and _is_own(node)
            for name in node.names
        }
        works = {node.name for node in own if any(map(_writes, ast.walk(node)))}
        while True:  # and those that call them
            more = {node.name for node in own if works & set(_called(node))} - works
            if not more:
                break
            works |= more
        idle = {node.name for node in own} - works
        self._working = self._own - idle
        self._made = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and set(_called(node.value)) & self._working
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def _point(self, kind: str, node: ast.expr | ast.stmt) -> ast.Constant:
        return ast.Constant(f"{self._label}:{node.lineno}:{node.col_offset}:{kind}")

    def _marked(self, kind: str, node: ast.expr) -> ast.expr:
        call = ast.Call(ast.Name(AT, ast.Load()), [self._point(kind, node), node], [])
        return ast.copy_location(call, node)

    def _assignment(self, node: Any) -> ast.AST:
        if node.value is None or not _is_list(node.value):
            return self.generic_visit(node)
        node.value = self._marked("list", node.value)
        return node  # type: ignore[no-any-return]

    visit_Assign = visit_AnnAssign = _assignment

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not any(map(_is_list, node.args)):
            return self.generic_visit(node)
        node.args = [self._marked("list", one) if _is_list(one) else one for one in node.args]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self._body(node, "body", "orelse")
        node.iter = self._iterated(node.iter)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return node  # but for the first one of each, which runs once

    def _comprehension(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        if not node.generators[0].is_async:
            node.generators[0].iter = self._iterated(node.generators[0].iter)
        return node  # type: ignore[no-any-return]

    visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_DictComp = _comprehension

    def _iterated(self, node: ast.expr) -> ast.expr:
        if _is_list(node):
            return self._marked("list", node)
        inner = self.visit(node)
        return self._marked("loop", inner if hasattr(inner, "lineno") else node)

    def _only_body(self, node: Any) -> ast.AST:
        return self._body(node, "body")

    visit_Module = visit_FunctionDef = visit_AsyncFunctionDef = visit_With = _only_body

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self.visit(node.test)
        return self._body(node, "body", "orelse")

    def visit_Try(self, node: ast.Try) -> ast.AST:
        return self._body(node, "body", "finalbody")

    def _body(self, node: Any, *names: str) -> ast.AST:
        """Mark the lists of a body, and its row of calls if it has one."""
        for name in names:
            body = getattr(node, name)
            rows = [one for one in body if self._works(one)]
            body = [self.visit(one) for one in body]
            if len(rows) > 1:
                point = self._point("calls", rows[0])
                body = [
                    self._switched(one, point, rows.index(one)) if one in rows else one
                    for one in body
                ]
            setattr(node, name, body)
        return node  # type: ignore[no-any-return]

    def _works(self, node: ast.stmt) -> bool:
        """Tell whether a statement is one call that does a part of the work."""
        if isinstance(node, ast.Expr | ast.AugAssign) and isinstance(node.value, ast.Call):
            return bool(self._calls_own(node.value))
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if len(node.targets) > 1 or not isinstance(node.targets[0], ast.Name):
                return False
            name, call = node.targets[0].id, node.value
            given = [one for one in call.args if isinstance(one, ast.Name) and one.id == name]
            if isinstance(call.func, ast.Attribute):
                on = isinstance(call.func.value, ast.Name) and call.func.value.id == name
                edits = (on and call.func.attr == "replace") or (given and call.func.attr == "sub")
                return bool(edits or (given and self._calls_own(call)))
            named = isinstance(call.func, ast.Name) and call.func.id in self._own
            return bool(given and named)
        return False

    def _calls_own(self, call: ast.Call) -> bool:
        func: ast.expr = call.func
        while isinstance(func, ast.Attribute | ast.Call):
            func = func.value if isinstance(func, ast.Attribute) else func.func
        if not isinstance(func, ast.Name):
            return False
        return func.id in self._working or (func.id in self._made and func is not call.func)

    def _switched(self, node: ast.stmt, point: ast.Constant, index: int) -> ast.stmt:
        call: Any = node
        call = call.value
        what = [point, ast.Constant(index)]
        name = ast.Constant(ast.unparse(call.func))
        seen = ast.Call(ast.Name(CALLED, ast.Load()), [*what, name, call.func], [])
        call.func = ast.copy_location(seen, call.func)
        test = ast.Call(ast.Name(ON, ast.Load()), [*what, ast.Constant(node.lineno)], [])
        return ast.copy_location(ast.If(test, [node], []), node)


def _is_own(node: ast.ImportFrom) -> bool:
    first = (node.module or "").partition(".")[0]
    return bool(node.level) or any(
        os.path.exists(os.path.join(folder or ".", first + end))
        for folder in sys.path[:1]
        for end in (".py", "/__init__.py")
    )


def _called(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name):
            yield one.func.id


def _writes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return isinstance(node.func, ast.Attribute) and node.func.attr in _WRITES


def _is_list(node: ast.expr) -> bool:
    """Tell whether an expression is a list of entries as it stands there."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = node.left, node.right
        return any(map(_is_list, sides)) and all(
            _is_list(one) or isinstance(one, ast.Name | ast.List | ast.Tuple) for one in sides
        )
    if isinstance(node, ast.Dict):
        return len(node.keys) > 1
    return isinstance(node, ast.List | ast.Tuple) and len(node.elts) > 1
