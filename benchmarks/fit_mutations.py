"""Faults put into correct patches, each with whether a person could see it from the tree.

The oracle is on purpose simpler than fit and shares no code with it: a definition counts when
its name is defined once in the whole tree, so that nobody need ask which one is meant.
"""

from __future__ import annotations

import ast
import builtins
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """``after`` is the file with the fault; ``decidable`` whether the tree shows that it is one.

    ``tree`` are other files of the release as the fault has them.
    """

    kind: str
    line: int
    what: str
    after: bytes
    decidable: bool
    tree: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Index:
    """Every definition of a tree by its last name, and every keyword that calls of it pass."""

    defined: dict[str, list[tuple[FunctionNode | ast.ClassDef, bool]]] = field(default_factory=dict)
    keywords: set[tuple[str, str]] = field(default_factory=set)
    classes: dict[str, list[ast.ClassDef]] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    stored: dict[str, int] = field(default_factory=dict)
    outside: frozenset[str] = frozenset()
    typing_only: frozenset[int] = frozenset()
    here: frozenset[str] = frozenset()
    globals: frozenset[str] = frozenset()

    def add(self, path: str, tree: ast.Module) -> None:
        self.modules.add(path.removesuffix("/__init__.py").removesuffix(".py").replace("/", "."))
        stack: list[tuple[ast.AST, bool]] = [(tree, False)]
        while stack:
            node, inside = stack.pop()
            if isinstance(node, FunctionNode):
                self.defined.setdefault(node.name, []).append((node, inside))
            elif isinstance(node, ast.ClassDef):
                self.defined.setdefault(node.name, []).append((node, False))
                self.classes.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Call):
                name = last_name(node.func)
                self.keywords.update((name, k.arg) for k in node.keywords if k.arg)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.stored[node.attr] = self.stored.get(node.attr, 0) + 1
            is_class = isinstance(node, ast.ClassDef)
            stack.extend((child, is_class) for child in ast.iter_child_nodes(node))

    def only(self, name: str) -> tuple[FunctionNode, bool] | None:
        """Return the one plain function that a name can mean, and whether it is a method."""
        found = self.defined.get(name, [])
        if len(found) != 1:
            return None
        node, method = found[0]
        if isinstance(node, ast.ClassDef):
            inits = [
                n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"
            ]
            if len(inits) != 1 or node.decorator_list or inits[0].decorator_list:
                return None
            return inits[0], True
        plain = {"staticmethod", "classmethod", "abstractmethod", "override"}
        if {last_name(d) for d in node.decorator_list} - plain:
            return None
        static = "staticmethod" in {last_name(d) for d in node.decorator_list}
        return node, method and not static


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def mutants(
    before: bytes | None, data: bytes, added: frozenset[int], index: Index
) -> Iterator[Mutant]:
    """Yield every fault that can be put on the added lines of a file."""
    tree = ast.parse(data)
    text = _Text(data)
    old = _parameters(ast.parse(before or b""))
    index.typing_only = _typing_only(tree)
    index.here = frozenset(
        (node.asname or node.name) if isinstance(node, ast.alias) else node.name
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode | ast.ClassDef | ast.alias)
    )
    index.globals = frozenset(
        node.id
        for statement in tree.body
        for node in ast.walk(statement)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(node, ast.Name)
    )
    index.outside = _imported_from_outside(tree)
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            # Any function that the patch touches: its callers may stand anywhere.
            if added.isdisjoint(range(node.lineno, (node.end_lineno or 0) + 1)):
                continue
            yield from _drop_parameter(text, node, added, index, old)
        if getattr(node, "lineno", 0) not in added:
            continue
        if isinstance(node, ast.ImportFrom):
            yield from _rename_import(text, node, added, index)
        elif isinstance(node, ast.Call):
            yield from _misspell_keyword(text, node, index)
            yield from _argument_too_many(text, node, index)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from _remove_assignment(text, node, added, index)


def _parameters(tree: ast.Module) -> frozenset[tuple[str, str]]:
    """Return every (function, parameter) of a file."""
    return frozenset(
        (node.name, argument.arg)
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode)
        for argument in [*node.args.args, *node.args.kwonlyargs]
    )


def _typing_only(tree: ast.Module) -> frozenset[int]:
    """Return the lines of statements that only type checkers see."""
    return frozenset(
        inner.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.stmt)
    )


def _imported_from_outside(tree: ast.Module) -> frozenset[str]:
    """Return the names that a file takes from anything but vLLM."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                a.asname or a.name.partition(".")[0]
                for a in node.names
                if not a.name.startswith("vllm")
            }
        elif isinstance(node, ast.ImportFrom) and not (node.module or ".").startswith(
            ("vllm", ".")
        ):
            found |= {a.asname or a.name for a in node.names if not node.level}
    return frozenset(found)


# Methods of tensors, modules, tasks and pydantic models that vLLM happens to define once, too.
_FOREIGN = {"new_empty", "register_buffer", "register_parameter", "cancel", "model_dump", "end"}
_FOREIGN |= {"model_validate", "model_copy", "state_dict", "load_state_dict", "to", "copy_", "size"}
_FOREIGN |= {name for kind in (str, bytes, dict, list, set, tuple) for name in dir(kind)}


class _Text:
    """The bytes of a file, cut by the positions of nodes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.starts = [0]
        for line in data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def span(
        self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias
    ) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def put(self, start: int, end: int, new: bytes) -> bytes:
        return self.data[:start] + new + self.data[end:]


def _drop_parameter(
    text: _Text,
    node: FunctionNode,
    added: frozenset[int],
    index: Index,
    old: frozenset[tuple[str, str]],
) -> Iterator[Mutant]:
    """Drop a parameter and leave its uses; or drop both, so that only its callers can tell."""
    plain = (
        node.args.args[1:]
        if node.args.args[:1] and node.args.args[0].arg in {"self", "cls"}
        else node.args.args
    )
    no_default = len(node.args.args) - len(node.args.defaults)
    for argument in plain:
        position = node.args.args.index(argument)
        if position >= no_default:
            continue
        start, end = text.span(argument)
        rest = text.data[end:]
        comma = len(rest) - len(rest.lstrip()) if rest.lstrip().startswith(b",") else -1
        if comma >= 0:
            end += comma + 1
        else:
            continue
        after = text.put(start, end, b"")
        uses = [
            n
            for s in node.body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and n.id == argument.arg
        ]
        if any(isinstance(n.ctx, ast.Store) for n in uses):
            continue
        what = f"{node.name}(…{argument.arg}…)"
        if uses and argument.lineno in added:
            given = argument.arg in dir(builtins) or argument.arg in index.globals
            yield Mutant(
                kind="drop a parameter",
                line=node.lineno,
                what=what,
                after=after,
                decidable=not given,
            )
        alone = index.only(node.name)
        body = text.data
        for use in sorted(uses, key=lambda n: -text.span(n)[0]):
            first, last = text.span(use)
            body = body[:first] + b"None" + body[last:]
        after = body[:start] + body[end:]
        try:
            ast.parse(after)
        except SyntaxError:
            continue
        # Callers of what the patch itself brings cannot be in the tree yet.
        passed = (node.name, argument.arg) in index.keywords & old
        decidable = alone is not None and passed and not alone[0].args.kwarg
        yield Mutant(
            kind="drop a parameter and its uses",
            line=node.lineno,
            what=what,
            after=after,
            decidable=decidable,
        )


def _rename_import(
    text: _Text, node: ast.ImportFrom, added: frozenset[int], index: Index
) -> Iterator[Mutant]:
    if node.level or not node.module or node.module == "__future__":
        return
    root = node.module.partition(".")[0]
    for alias in node.names:
        if alias.name == "*" or alias.lineno not in added:
            continue
        new = f"{alias.name}_x as {alias.asname or alias.name}".encode()
        yield Mutant(
            kind="rename an import",
            line=alias.lineno,
            what=f"from {node.module} import {alias.name}",
            after=text.put(*text.span(alias), new),
            # An import that never runs breaks nothing.
            decidable=node.lineno not in index.typing_only
            and (node.module in index.modules or root in sys.stdlib_module_names),
        )


def _called(node: ast.Call, index: Index) -> tuple[FunctionNode, bool] | None:
    """Return what a call means, where that is beyond doubt."""
    name = last_name(node.func)
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        return None
    head = ast.unparse(node.func).partition(".")[0]
    if head in index.outside | {"tl", "triton"} or name in _FOREIGN:  # vLLM hands these on
        return None
    if isinstance(node.func, ast.Name) and name not in index.here:
        return None
    return index.only(name) if name and not name.startswith("__") else None


def _misspell_keyword(text: _Text, node: ast.Call, index: Index) -> Iterator[Mutant]:
    called = _called(node, index)
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        start = text.span(keyword)[0]
        names = set()
        if called is not None:
            every = [*called[0].args.args, *called[0].args.kwonlyargs]
            names = {argument.arg for argument in every}
        yield Mutant(
            kind="misspell a keyword",
            line=keyword.lineno,
            what=f"{ast.unparse(node.func)[:50]}({keyword.arg}=)",
            after=text.put(start, start + len(keyword.arg), f"{keyword.arg}_x".encode()),
            decidable=called is not None and keyword.arg in names and called[0].args.kwarg is None,
        )


def _argument_too_many(text: _Text, node: ast.Call, index: Index) -> Iterator[Mutant]:
    if not isinstance(node.func, ast.Attribute | ast.Name):
        return
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        return
    opening = text.data.find(b"(", text.span(node.func)[1], text.span(node)[1])
    after = text.put(opening + 1, opening + 1, b"None, " if node.args or node.keywords else b"None")
    if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
        return
    called = _called(node, index)
    decidable = False
    if called is not None and called[0].args.vararg is None:
        room = len(called[0].args.posonlyargs) + len(called[0].args.args) - called[1]
        decidable = len(node.args) + 1 > room
    yield Mutant(
        kind="one argument too many",
        line=node.lineno,
        what=f"{ast.unparse(node.func)[:50]}(None, …)",
        after=after,
        decidable=decidable,
    )


def _remove_assignment(
    text: _Text, node: ast.ClassDef, added: frozenset[int], index: Index
) -> Iterator[Mutant]:
    stores: dict[str, list[ast.Assign | ast.AnnAssign]] = {}
    loads: set[str] = set()
    bound = {
        n.id
        for s in node.body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    bound |= {n.name for n in node.body if isinstance(n, FunctionNode)}
    for method in node.body:
        if not isinstance(method, FunctionNode):
            continue
        for statement in ast.walk(method):
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                if len(targets) == 1 and _of_self(targets[0]):
                    stores.setdefault(last_name(targets[0]), []).append(statement)
            if (
                isinstance(statement, ast.Attribute)
                and _of_self(statement)
                and isinstance(statement.ctx, ast.Load)
            ):
                loads.add(statement.attr)
    for name, statements in stores.items():
        if (
            len(statements) != 1
            or statements[0].lineno not in added
            or name in bound
            or name not in loads
        ):
            continue
        yield Mutant(
            kind="remove an assignment to an attribute",
            line=statements[0].lineno,
            what=f"{node.name}.{name}",
            after=text.put(*text.span(statements[0]), b"pass"),
            decidable=_plain_bases(node, index, name)
            and index.stored.get(name) == 1
            # Code that asks ``hasattr(self, …)`` does not break.
            and f'"{name}"'.encode() not in text.data,
        )


def _of_self(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


_PLAIN = {"ABC", "Module", "object", "Protocol", "Generic", "Enum"}


def _plain_bases(node: ast.ClassDef, index: Index, name: str, seen: Iterable[str] = ()) -> bool:
    """Tell whether all bases are in the tree, unambiguous, and say nothing of the attribute."""
    for base in node.bases:
        base_name = last_name(base.value if isinstance(base, ast.Subscript) else base)
        if base_name in _PLAIN:
            continue
        found = index.classes.get(base_name, [])
        if len(found) != 1 or base_name in seen:
            return False
        body = {
            n.id
            for s in found[0].body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if name in body | {getattr(n, "name", "") for n in found[0].body}:
            return False
        if any(getattr(n, "name", "") == "__getattr__" for n in found[0].body):
            return False
        if not _plain_bases(found[0], index, name, (*seen, base_name)):
            return False
    return not any(getattr(n, "name", "") == "__getattr__" for n in node.body)
