# ruff: noqa: C901, PLR0912, PLR0915, RUF021, SIM102 - one kind of fault per branch
"""Faults of the kinds that real breakage is made of, put into real code or into what it uses.

Beside ``fit_mutations``, and like it on purpose simpler than fit: a definition counts when its
name is defined once in the whole tree. A mutant may change the tree as well as the patched
file: a release that moved on under a patch that did not.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from fit_mutations import FunctionNode, Index, Mutant, _Text, last_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_BUILTIN = {"int", "str", "bool", "float"}


@dataclass(slots=True)
class Code:
    """A tree as the mutations need it: its files, and where each name is defined."""

    files: dict[str, bytes]
    index: Index
    trees: dict[str, ast.Module] = field(default_factory=dict)
    where: dict[str, list[tuple[str, ast.AST]]] = field(default_factory=dict)
    importers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    kept: dict[object, object] = field(default_factory=dict)

    def once(self, key: object, make: Callable[[], T]) -> T:
        """Return what was made for a key before, as long as the nodes in it live."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]  # type: ignore[return-value]

    def fill(self) -> None:
        for path, data in self.files.items():
            for word in set(re.findall(rb"[A-Za-z_]\w*", data)):
                self.words[word.decode()] = self.words.get(word.decode(), 0) + 1
            for node in self.trees[path].body:
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [alias.name for alias in node.names]
                    self.importers.setdefault(node.module, []).append((path, names[0]))
            for inner in ast.walk(self.trees[path]):
                if isinstance(inner, FunctionNode | ast.ClassDef):
                    self.where.setdefault(inner.name, []).append((path, inner))

    def cls(self, name: str) -> ast.ClassDef | None:
        found = self.index.classes.get(name, [])
        return found[0] if len(found) == 1 and len(self.index.defined[name]) == 1 else None

    def bases(self, node: ast.ClassDef, depth: int = 0) -> list[ast.ClassDef] | None:
        """Return a class and its bases, ``None`` if one is not in the tree or has ``__getattr__``."""
        return self.once(("bases", node), lambda: self._bases(node, depth))

    def _bases(self, node: ast.ClassDef, depth: int) -> list[ast.ClassDef] | None:
        line = [node]
        if any(getattr(n, "name", "") == "__getattr__" for n in node.body) or depth > 8:
            return None
        for base in node.bases:
            name = last_name(base.value if isinstance(base, ast.Subscript) else base)
            if name in {"ABC", "object", "Protocol", "Generic", "Enum", "NamedTuple", "IntEnum"}:
                continue
            found = self.cls(name)
            above = None if found is None else self.bases(found, depth + 1)
            if above is None:
                return None
            line += above
        return line

    def members(self, node: ast.ClassDef) -> dict[str, ast.AST]:
        """Return what an instance has by its class's body."""
        return self.once(("members", node), lambda: self._members(node))

    def _members(self, node: ast.ClassDef) -> dict[str, ast.AST]:
        found: dict[str, ast.AST] = {}
        for one in reversed(self.bases(node) or []):
            for inner in one.body:
                if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    found[inner.target.id] = inner
                elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                    found[inner.targets[0].id] = inner
                elif isinstance(inner, FunctionNode):
                    found[inner.name] = inner
        return found

    def known(self, node: ast.expr | None) -> ast.ClassDef | None:
        """Return the class that an annotation names, where all its members are in the tree."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.Name(node.value)
        found = self.cls(last_name(node)) if isinstance(node, ast.Name | ast.Attribute) else None
        return found if found is not None and self.bases(found) else None

    def sole(self, name: str) -> tuple[str, FunctionNode] | None:
        """Return the one plain function of that name, and its file."""
        found = self.where.get(name, [])
        if len(found) != 1 or name in _COMMON or name.startswith("__"):
            return None
        path, node = found[0]
        return (path, node) if isinstance(node, FunctionNode) else None


_COMMON = {name for kind in (str, bytes, dict, list, set, tuple, int) for name in dir(kind)}


def _is_a(node: ast.ClassDef, code: Code, *names: str) -> bool:
    every = code.bases(node) or [node]
    return any(last_name(base) in names for one in every for base in one.bases)


def _decorated(node: ast.AST, name: str) -> ast.expr | None:
    return next((d for d in getattr(node, "decorator_list", ()) if last_name(d) == name), None)


class File:
    """One file to be mutated: its nodes with their parents and the functions around them."""

    def __init__(self, path: str, data: bytes, tree: ast.Module, added: frozenset[int]) -> None:
        self.path, self.text, self.tree, self.added = path, _Text(data), tree, added
        self.parents = {c: n for n in ast.walk(tree) for c in ast.iter_child_nodes(n)}
        self.imported = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)
                         for a in n.names if (n.module or "").startswith("vllm") or n.level}  # fmt: skip
        self.imported |= {n.name for n in tree.body if isinstance(n, ast.ClassDef)}

    def functions(self) -> Iterator[FunctionNode]:
        for node in ast.walk(self.tree):
            if isinstance(node, FunctionNode) and not self.added.isdisjoint(
                range(node.lineno, node.end_lineno or 0)
            ):
                yield node

    def scope(self, node: ast.AST, *kinds: type) -> ast.AST | None:
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, kinds):
                return node
        return None

    def mutant(self, kind: str, node: ast.AST, what: str, after: bytes, **tree: bytes) -> Mutant:
        line = getattr(node, "lineno", 1)
        return Mutant(kind=kind, line=line, what=what, after=after, decidable=True, tree=tree)

    def renamed(self, kind: str, node: ast.Attribute | ast.Name) -> Mutant:
        end = self.text.span(node)[1]
        return self.mutant(kind, node, f"{ast.unparse(node)}_x", self.text.put(end, end, b"_x"))

    def before_body(self, kind: str, node: FunctionNode, *lines: str) -> Iterator[Mutant]:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and node.body[1:]:
            first = node.body[1]
        start = self.text.at(first.lineno, 0)
        if isinstance(first, FunctionNode | ast.ClassDef) or first.lineno == node.lineno:
            return
        new = "".join(f"{' ' * first.col_offset}{line}\n" for line in lines).encode()
        yield self.mutant(kind, first, "; ".join(lines), self.text.put(start, start, new))


def kinds(path: str, data: bytes, added: frozenset[int], code: Code) -> Iterator[Mutant]:
    """Yield every fault of these kinds that can be put on the added lines of a file."""
    file = File(path, data, code.trees[path], added)
    for node in ast.walk(file.tree):
        if getattr(node, "lineno", 0) not in added:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _members(file, node, code)
        elif isinstance(node, ast.Call):
            yield from _calls(file, node, code)
        elif isinstance(node, ast.ClassDef):
            yield from _classes(file, node, code)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _strings(file, node, code)
        elif isinstance(node, ast.Subscript):
            yield from _subscripts(file, node, code)
        elif isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            yield from _await(file, node, code)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from _unpacking(file, node, code)
        elif isinstance(node, ast.With):
            yield from _contexts(file, node, code)
        yield from _moved_names(file, node, code)
    for function in file.functions():
        yield from _statements(file, function, code)
    yield from _whole(file, code)


def _typed(file: File, node: ast.AST, name: str, code: Code) -> ast.ClassDef | None:
    """Return the class of a parameter of the function around a node."""
    function = file.scope(node, ast.FunctionDef, ast.AsyncFunctionDef)
    if not isinstance(function, FunctionNode):
        return None
    if _stores(function, name, code):
        return None
    arguments = [*function.args.args, *function.args.kwonlyargs]
    found = next((a for a in arguments if a.arg == name), None)
    return code.known(found.annotation) if found is not None else None


def _sole(file: File, node: ast.Call, code: Code) -> tuple[str, FunctionNode] | None:
    """Return the one function that a call means, and its file: ``torch.cuda.stream`` is none of vLLM's."""
    found, name = code.sole(last_name(node.func)), last_name(node.func)
    if found is None or isinstance(node.func, ast.Name):
        return found if name in file.imported else None
    value = getattr(node.func, "value", None)
    head = value.id if isinstance(value, ast.Name) else ""
    mine = file.scope(node, ast.ClassDef) if head in {"self", "cls"} else None
    owner = mine or _typed(file, node, head, code)
    if not isinstance(owner, ast.ClassDef) or code.bases(owner) is None:
        return None
    return found if code.members(owner).get(name) is found[1] else None


def _members(file: File, node: ast.Attribute, code: Code) -> Iterator[Mutant]:
    parent = file.parents.get(node)
    called = isinstance(parent, ast.Call) and parent.func is node
    value = node.value
    if isinstance(value, ast.Name):
        owner = _typed(file, node, value.id, code)
        found = code.members(owner).get(node.attr) if owner else None
        if owner is not None and found is not None:
            what = "method" if called else "attribute"
            yield file.renamed(f"{what} gone on a typed parameter", node)
            if not called:
                start, end = file.text.span(node)
                new = b'getattr(%b, "%b_x")' % (value.id.encode(), node.attr.encode())
                yield file.mutant(
                    "literal getattr", node, new.decode(), file.text.put(start, end, new)
                )
            yield from _exchanged(file, node, found, called=called, code=code)
            if _frozen(owner) and isinstance(found, ast.AnnAssign):
                function = file.scope(node, ast.FunctionDef)
                if isinstance(function, ast.FunctionDef):
                    line = f"{value.id}.{node.attr} = None"
                    yield from file.before_body("frozen field assigned", function, line)
        made = code.cls(value.id) if value.id in file.imported else None
        if made is not None and code.bases(made) and node.attr in code.members(made):
            enum = _is_a(made, code, "Enum", "IntEnum")
            yield file.renamed("enum member gone" if enum else "class member gone", node)
            if enum:
                start, end = file.text.span(node)
                new = f'{value.id}["{node.attr}_x"]'.encode()
                yield file.mutant("Enum['X']", node, new.decode(), file.text.put(start, end, new))
        if (
            value.id == "self"
            and called
            and isinstance(file.scope(node, ast.ClassDef), ast.ClassDef)
        ):
            mine = file.scope(node, ast.ClassDef)
            if code.bases(mine) and node.attr in code.members(mine):  # type: ignore[arg-type]
                yield file.renamed("method gone on self", node)
        if value.id == "current_platform":
            yield file.renamed("hook of the platform gone", node)
        if value.id == "envs" and node.attr.startswith("VLLM_"):
            yield file.renamed("environment variable", node)
        made = _local(file, node, value.id, code)
        if made is not None and node.attr in code.members(made):
            yield file.renamed("member gone on an instance made there", node)
    elif isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        owner = _typed(file, node, value.value.id, code)
        first = code.members(owner).get(value.attr) if owner else None
        second = code.known(getattr(first, "annotation", None))
        if second is not None and node.attr in code.members(second):
            yield file.renamed("member gone on a declared chain", node)
        second = _own(file, node, value, code) if value.value.id == "self" else None
        if second is not None and node.attr in code.members(second):
            yield file.renamed("member gone on an attribute of self", node)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        made = code.cls(value.func.id) if value.func.id in file.imported else None
        if made is not None and code.bases(made) and node.attr in code.members(made):
            yield file.renamed("member gone on an instance made there", node)
    if ast.unparse(value) == "torch.ops.vllm":
        yield file.renamed("torch.ops.vllm name", node)


def _stores(function: ast.AST, name: str, code: Code) -> list[ast.Name]:
    """Return where a function binds a name."""

    def collect() -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, []).append(node)
        return found

    return code.once(("stores", function), collect).get(name, [])


def _local(file: File, node: ast.AST, name: str, code: Code) -> ast.ClassDef | None:
    """Return the class of a name that is bound once, by calling the class."""
    function = file.scope(node, ast.FunctionDef)
    if function is None:
        return None
    stores = _stores(function, name, code)
    parent = file.parents.get(stores[0]) if len(stores) == 1 else None
    if not isinstance(parent, ast.Assign) or not isinstance(parent.value, ast.Call):
        return None
    func = parent.value.func
    return code.known(func) if isinstance(func, ast.Name) and func.id in file.imported else None


def _own(file: File, node: ast.AST, value: ast.Attribute, code: Code) -> ast.ClassDef | None:
    """Return the class of ``self.x`` where the class makes it once."""
    mine = file.scope(node, ast.ClassDef)
    assigned = code.once(("own", mine), lambda: [n for n in ast.walk(mine or ast.Pass())
                         if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Attribute)])  # fmt: skip
    made = [n for n in assigned if last_name(n.targets[0]) == value.attr]
    if len(made) != 1 or not isinstance(made[0].value, ast.Call):
        return None
    func = made[0].value.func
    return code.known(func) if isinstance(func, ast.Name) and func.id in file.imported else None


def _frozen(node: ast.ClassDef) -> bool:
    found = _decorated(node, "dataclass")
    return found is not None and "frozen=True" in ast.unparse(found)


def _exchanged(
    file: File, node: ast.Attribute, found: ast.AST, *, called: bool, code: Code
) -> Iterator[Mutant]:
    if not isinstance(found, FunctionNode) or found.name not in code.where:
        return
    if len(code.where[found.name]) != 1:
        return
    path = code.where[found.name][0][0]
    if path == file.path:
        return
    text = _Text(code.files[path])
    there = _decorated(found, "property")
    if there is not None and not called and len(found.decorator_list) == 1:
        start = text.at(there.lineno, 0)
        end = text.at(there.lineno + 1, 0)
        used = file.parents.get(node)
        if isinstance(
            used,
            ast.Compare
            | ast.BinOp
            | ast.Attribute
            | ast.Subscript
            | ast.If
            | ast.IfExp
            | ast.UnaryOp,
        ):
            kind = "property became a method"
            yield file.mutant(
                kind, node, ast.unparse(node), file.text.data, **{path: text.put(start, end, b"")}
            )
    elif called and not found.decorator_list and last_name(found.returns or ast.Pass()) in _BUILTIN:
        if len(found.args.args) == 1:
            start = text.at(found.lineno, 0)
            new = b" " * found.col_offset + b"@property\n"
            kind = "method became a property"
            yield file.mutant(
                kind, node, ast.unparse(node), file.text.data, **{path: text.put(start, start, new)}
            )


def _calls(file: File, node: ast.Call, code: Code) -> Iterator[Mutant]:
    name = last_name(node.func)
    if isinstance(node.func, ast.Name) and (name in file.imported or name in code.where):
        yield file.renamed("name misspelt", node.func)
    if ast.unparse(node.func) == "super().__init__":
        mine = file.scope(node, ast.ClassDef)
        base = (
            code.known(mine.bases[0])
            if isinstance(mine, ast.ClassDef) and len(mine.bases) == 1
            else None
        )
        init = code.members(base).get("__init__") if base else None
        if (
            isinstance(init, FunctionNode)
            and not init.args.kwarg
            and not _decorated(base or node, "dataclass")
        ):
            end = file.text.span(node)[1] - 1
            new = b", no_such=1)" if node.args or node.keywords else b"no_such=1)"
            if not file.text.data[:end].rstrip().endswith(b","):
                yield file.mutant(
                    "super().__init__ of another signature",
                    node,
                    "no_such=",
                    file.text.put(end, end + 1, new),
                )
    made = code.cls(name) if isinstance(node.func, ast.Name) and name in file.imported else None
    if made is not None:
        yield from _made(file, node, made, code)
    if (
        name in {"info", "debug", "warning"}
        and ast.unparse(node.func).startswith("logger.")
        and len(node.args) > 1
    ):
        first = node.args[0]
        if isinstance(first, ast.Constant) and str(first.value).count("%s") == len(node.args) - 1:
            start, end = file.text.span(node.args[-1])
            cut = file.text.data.rfind(b",", 0, start)
            yield file.mutant(
                "bad format", node, ast.unparse(first)[:50], file.text.put(cut, end, b"")
            )
    if name == "isinstance" and isinstance(node.args[1], ast.Name):
        yield from _function(file, node, node.args[1], "class became a function: isinstance", code)
        yield from _unmarked(file, node, node.args[1].id, code)
    end = file.text.span(node)[1] - 1
    if name == "replace" and len(node.args) == 1 and node.keywords:
        if not file.text.data[:end].rstrip().endswith(b","):
            new = file.text.put(end, end, b", no_such=1")
            yield file.mutant("field of replace() gone", node, "no_such=", new)
    rpc = next((k.value for k in node.keywords if k.arg == "args"), None)
    if name == "collective_rpc" and isinstance(rpc, ast.Tuple):
        start = file.text.span(rpc)[0] + 1
        new = file.text.put(start, start, b"None, None, ")
        yield file.mutant("arguments of a call of workers", node, "None, None", new)
    yield from _above(file, node, code)
    yield from _layers(file, node, code)
    found = _sole(file, node, code)
    if found is None:
        return
    yield from _moved_on(file, node, found, code)


def _moved_on(
    file: File, node: ast.Call, found: tuple[str, FunctionNode], code: Code
) -> Iterator[Mutant]:
    """What may happen to a function that a patch calls."""
    path, there = found
    text = _Text(code.files[path])
    parent = file.parents.get(node)
    method = isinstance(node.func, ast.Attribute)
    arguments = there.args.args[1:] if method else there.args.args
    outside = path != file.path
    if there.decorator_list or isinstance(there, ast.AsyncFunctionDef):
        return
    if outside and arguments and not there.args.vararg and not there.args.kwarg:
        start = text.span(arguments[0])[0]
        new = text.put(start, start, b"brand_new, ")
        passed = {k.arg for k in node.keywords}
        if None not in passed and not any(isinstance(a, ast.Starred) for a in node.args):
            named = ["brand_new", *(a.arg for a in arguments)]
            filled, asked = named[: len(node.args)], len(named) - len(there.args.defaults)
            if passed & {*filled} or not {*named[:asked]} <= passed | {*filled}:
                yield file.mutant(
                    "parameter became required", node, there.name, file.text.data, **{path: new}
                )
            if len(node.args) == len(arguments) and not there.args.kwonlyargs:
                start = text.span(arguments[-1])[0]
                new = text.put(start, start, b"*, ")
                if not there.args.defaults or len(there.args.defaults) <= 1 or True:
                    yield file.mutant(
                        "parameter became keyword-only",
                        node,
                        there.name,
                        file.text.data,
                        **{path: new},
                    )
    for argument, value in zip(arguments, node.args, strict=False):
        if last_name(argument.annotation or ast.Pass()) in {
            "int",
            "str",
            "bool",
        } and not isinstance(value, ast.Starred):
            start, end = file.text.span(value)
            yield file.mutant(
                "wrong argument type",
                node,
                f"{there.name}([None])",
                file.text.put(start, end, b"[None]"),
            )
            break
    generator = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(there))
    if (
        outside
        and not isinstance(parent, ast.Await)
        and not generator
        and isinstance(file.scope(node, ast.FunctionDef, ast.AsyncFunctionDef), FunctionNode)
    ):
        start = text.span(there)[0]
        used = isinstance(
            parent,
            ast.Expr | ast.Attribute | ast.Subscript | ast.Compare | ast.For | ast.If | ast.Assign,
        )
        if used:
            yield file.mutant(
                "sync became async",
                node,
                there.name,
                file.text.data,
                **{path: text.put(start, start, b"async ")},
            )
    returned = there.returns
    if outside and isinstance(returned, ast.Name) and code.cls(returned.id):
        after = text.put(*text.span(returned), f'"{returned.id} | None"'.encode())
        name = ast.unparse(parent.targets[0]) if isinstance(parent, ast.Assign) else ""
        function = file.scope(node, ast.FunctionDef)
        uses = [
            n
            for n in ast.walk(function or ast.Pass())
            if isinstance(n, ast.Attribute) and ast.unparse(n.value) == name
        ]
        if isinstance(parent, ast.Attribute) or uses:
            yield file.mutant(
                "result became Optional", node, there.name, file.text.data, **{path: after}
            )


def _function(file: File, node: ast.AST, used: ast.Name, kind: str, code: Code) -> Iterator[Mutant]:
    """Make a class of the tree a function."""
    found = code.where.get(used.id, [])
    if len(found) != 1 or not isinstance(found[0][1], ast.ClassDef) or used.id not in file.imported:
        return
    path, there = found[0]
    head = re.compile(rb"class %b\b[^:]*:" % used.id.encode())
    if path == file.path or there.decorator_list or not head.search(code.files[path]):  # type: ignore[attr-defined]
        return
    new = head.sub(b"def %b(*args, **kwargs):" % used.id.encode(), code.files[path], count=1)
    try:
        compile(new, path, "exec", dont_inherit=True)
    except SyntaxError:
        return
    yield file.mutant(kind, node, used.id, file.text.data, **{path: new})


def _unmarked(file: File, node: ast.Call, name: str, code: Code) -> Iterator[Mutant]:
    """Take the mark off a protocol that makes ``isinstance`` work."""
    found = code.cls(name)
    mark = _decorated(found, "runtime_checkable") if found is not None else None
    path = code.where[name][0][0] if mark is not None else file.path
    if mark is not None and path != file.path:
        text = _Text(code.files[path])
        new = text.put(text.at(mark.lineno, 0), text.at(mark.lineno + 1, 0), b"")
        kind = "protocol not checkable at run time"
        yield file.mutant(kind, node, name, file.text.data, **{path: new})


def _above(file: File, node: ast.Call, code: Code) -> Iterator[Mutant]:
    """Rename what ``super().method()`` calls in the one class above that has it."""
    mine = file.scope(node, ast.ClassDef)
    match node.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if isinstance(
            mine, ast.ClassDef
        ) and not name.startswith("__"):
            line = code.bases(mine) or []
            found = [n for one in line[1:] for n in one.body if getattr(n, "name", "") == name]
            places = [path for path, one in code.where.get(name, ()) if one in found]
            if len(found) == 1 and places and places[0] != file.path:
                text = _Text(code.files[places[0]])
                start = text.data.index(name.encode(), text.at(found[0].lineno, 0))
                new = text.put(start + len(name), start + len(name), b"_x")
                kind = "method gone above super()"
                yield file.mutant(kind, node, f"super().{name}", file.text.data, **{places[0]: new})
        case _:
            pass


def _layers(file: File, node: ast.Call, code: Code) -> Iterator[Mutant]:
    """Let the ``forward`` of a layer that the class makes once ask for more."""
    mine, func = file.scope(node, ast.ClassDef), ast.unparse(node.func)
    if mine is None or not re.fullmatch(r"self\.\w+", func):
        return
    made = [n.value for n in ast.walk(mine)
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == func]  # fmt: skip
    name = last_name(made[0].func) if len(made) == 1 and isinstance(made[0], ast.Call) else ""
    found = code.cls(name)
    forward = next((n for n in getattr(found, "body", ()) if getattr(n, "name", "") == "forward"), None)  # fmt: skip
    path = code.where[name][0][0] if forward is not None else file.path
    if path == file.path or not isinstance(forward, FunctionNode) or forward.decorator_list:
        return
    args = forward.args
    if len(args.args) > 1 and not (args.vararg or args.kwonlyargs or args.kwarg or args.defaults):
        text = _Text(code.files[path])
        end = text.span(args.args[-1])[1]
        new = text.put(end, end, b", *, brand_new")
        yield file.mutant("layer asks for more", node, func, file.text.data, **{path: new})


def _made(file: File, node: ast.Call, made: ast.ClassDef, code: Code) -> Iterator[Mutant]:
    path = code.where[made.name][0][0]
    models = {"BaseModel", "OpenAIBaseModel"}
    fields = [
        n for n in made.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]
    if (
        models & {last_name(b) for b in made.bases}
        or _decorated(made, "dataclass")
        and _is_a(made, code, *models)
    ):
        for keyword in node.keywords:
            if any(f.target.id == keyword.arg and f.value is None for f in fields):  # type: ignore[union-attr]
                start, end = file.text.span(keyword)
                comma = re.match(rb"\s*,", file.text.data[end:])
                if comma:
                    what = f"{made.name}({keyword.arg}=)"
                    yield file.mutant(
                        "required field of a pydantic model",
                        node,
                        what,
                        file.text.put(start, end + comma.end(), b""),
                    )
                    break
    data = _decorated(made, "dataclass")
    if data is not None and path != file.path:
        for keyword in node.keywords:
            there = next((f for f in fields if f.target.id == keyword.arg), None)  # type: ignore[union-attr]
            if there is not None:
                text = _Text(code.files[path])
                end = text.span(there.target)[1]
                yield file.mutant(
                    "field renamed",
                    node,
                    f"{made.name}({keyword.arg}=)",
                    file.text.data,
                    **{path: text.put(end, end, b"_x")},
                )
                break


def _classes(file: File, node: ast.ClassDef, code: Code) -> Iterator[Mutant]:
    for base in node.bases:
        if isinstance(base, ast.Name):
            yield from _function(file, node, base, "class became a function: subclassed", code)
    line = code.bases(node)
    plain = line is not None and len(line) > 1 and _is_a(node, code, "ABC")
    methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
    above = {n.name: n for one in (line or [])[1:] for n in one.body if isinstance(n, FunctionNode)}
    leaf = node.name not in code.once("bases", lambda: {
        last_name(b) for many in code.index.classes.values() for c in many for b in c.bases})  # fmt: skip
    if plain and line is not None and leaf:
        above_it = line[1]
        found = code.where[above_it.name]
        abstract = {n for n, m in above.items() if _decorated(m, "abstractmethod")}
        if (
            len(found) == 1
            and found[0][0] != file.path
            and not abstract - methods.keys()
            and abstract
        ):
            text = _Text(code.files[found[0][0]])
            first = next((n for n in above_it.body if isinstance(n, ast.FunctionDef)), None)
            if first is not None:
                start = text.at(min([first.lineno, *(d.lineno for d in first.decorator_list)]), 0)
                new = b"    @abstractmethod\n    def brand_new(self): ...\n\n"
                yield file.mutant(
                    "new abstract method in a base",
                    node,
                    node.name,
                    file.text.data,
                    **{found[0][0]: text.put(start, start, new)},
                )
    for name, method in methods.items():
        if name in above and not name.startswith("__") and method.lineno in file.added:
            if not method.decorator_list and not _decorated(above[name], "abstractmethod"):
                start = file.text.data.index(name.encode(), file.text.at(method.lineno, 0))
                end = start + len(name)
                yield file.mutant(
                    "override misspelt", method, f"{name}_x", file.text.put(end, end, b"_x")
                )
                if (
                    len(name) > 8
                    and code.words[name] < 40
                    and "hook renamed upstream" not in code.full
                    and not any(
                        above[name] in one.body
                        for one in file.tree.body
                        if isinstance(one, ast.ClassDef)
                    )  # else it is renamed nowhere
                ):
                    word = re.compile(rb"\b%b\b" % name.encode())
                    renamed = {p: word.sub(b"renamed_" + name.encode(), d) for p, d in code.files.items()
                           if p != file.path and name.encode() in d}  # fmt: skip
                    yield file.mutant(
                        "hook renamed upstream", method, name, file.text.data, **renamed
                    )
        if method.lineno in file.added and not method.decorator_list:
            end = (
                file.text.at(method.end_lineno or 0, 0)
                + len(file.text.data.splitlines()[(method.end_lineno or 1) - 1])
                + 1
            )
            new = b"\n    def %b(self):\n        return None\n" % name.encode()
            if node.col_offset == 0:
                yield file.mutant("name defined twice", method, name, file.text.put(end, end, new))


def _strings(file: File, node: ast.Constant, code: Code) -> Iterator[Mutant]:
    _, end = file.text.span(node)
    if node.lineno != node.end_lineno or file.text.data[end - 1 : end] not in b"\"'":
        return
    parent = file.parents.get(node)
    if (
        isinstance(parent, ast.Expr | ast.JoinedStr)
        or isinstance(parent, ast.AnnAssign)
        and parent.annotation is node
    ):
        return
    text = str(node.value)
    after = file.text.put(end - 1, end - 1, b"_x")
    module, _, last = text.rpartition(".")
    if re.fullmatch(r"vllm(\.\w+){2,}", text) and last[:1].isupper():
        stem = module.replace(".", "/")
        if f"{stem}.py" in code.files or f"{stem}/__init__.py" in code.files:
            yield file.mutant("qualname string", node, text, after)
    beside = parent.args if isinstance(parent, ast.Call) else []
    following = beside[beside.index(node) + 1 :] if node in beside else []
    match following:
        case [ast.Constant(value=str(name)), *_] if name[:1].isupper():
            if f"{text.replace('.', '/')}.py" in code.files:
                yield file.mutant("module registered by its name", node, text, after)
    function = file.scope(node, ast.FunctionDef)
    stated = getattr(function, "returns", None)
    returned = isinstance(parent, ast.Return) and stated and "QuantizationM" in ast.unparse(stated)
    compared = isinstance(parent, ast.Compare) and ast.unparse(parent.left).endswith("quantization")
    if (returned or compared) and text in code.once("names", lambda: _quantization(code)):
        yield file.mutant("quantization name", node, text, after)
    read = isinstance(parent, ast.Call | ast.Subscript) and ast.unparse(parent)
    if re.fullmatch(r"VLLM_\w+", text) and read and re.search("environ|getenv", read):
        yield file.mutant("environment variable by its name", node, text, after)
    left = parent.left if isinstance(parent, ast.Compare) else None
    if isinstance(left, ast.Call) and last_name(left.func) == "get_name" and text.isupper():
        yield file.mutant("attention backend name", node, text, after)
    registry = file.path.endswith("models/registry.py")
    if registry and isinstance(parent, ast.Tuple) and parent.elts[0] is node:
        yield file.mutant("model registry", node, text, after)


def _quantization(code: Code) -> set[str]:
    tree = code.trees["vllm/model_executor/layers/quantization/__init__.py"]
    literal = next(
        n for n in tree.body if isinstance(n, ast.Assign) and "Literal" in ast.unparse(n.value)
    )
    return {str(n.value) for n in ast.walk(literal) if isinstance(n, ast.Constant)}


def _subscripts(file: File, node: ast.Subscript, code: Code) -> Iterator[Mutant]:
    if not isinstance(node.value, ast.Name) or not isinstance(node.ctx, ast.Load):
        return
    found = code.cls(node.value.id) if node.value.id in file.imported else None
    if found is not None and _is_a(found, code, "Enum", "IntEnum"):
        start, end = file.text.span(node.slice)
        yield file.mutant(
            "Enum['X']",
            node,
            f"{node.value.id}['NO_SUCH']",
            file.text.put(start, end, b'"NO_SUCH"'),
        )


def _await(file: File, node: ast.Await, code: Code) -> Iterator[Mutant]:
    found = code.sole(last_name(node.value.func))  # type: ignore[attr-defined]
    head = ast.unparse(node.value).partition(".")[0]
    if (
        found is None
        or not isinstance(found[1], ast.AsyncFunctionDef)
        or head not in {"self", *file.imported}
    ):
        return
    start = file.text.span(node)[0]
    if isinstance(file.parents.get(node), ast.Expr | ast.Assign | ast.Attribute):
        yield file.mutant(
            "await left out", node, ast.unparse(node)[:40], file.text.put(start, start + 6, b"")
        )


def _unpacking(file: File, node: ast.Assign, code: Code) -> Iterator[Mutant]:
    target, call = node.targets[0], node.value
    if not isinstance(target, ast.Tuple) or any(isinstance(e, ast.Starred) for e in target.elts):
        return
    found = _sole(file, call, code)  # type: ignore[arg-type]
    if found is None or found[0] == file.path:
        return
    path, there = found
    nested = {
        n
        for f in ast.walk(there)
        if isinstance(f, FunctionNode | ast.Lambda) and f is not there
        for n in ast.walk(f)
    }
    returns = [n for n in ast.walk(there) if isinstance(n, ast.Return) and n not in nested]
    if not returns or not all(
        isinstance(r.value, ast.Tuple) and len(r.value.elts) == len(target.elts) for r in returns
    ):
        return
    data = code.files[path]
    text = _Text(data)
    for one in sorted(returns, key=lambda r: -r.lineno):
        end = text.span(one.value.elts[-1])[1]  # type: ignore[union-attr]
        data = data[:end] + b", None" + data[end:]
    if there.returns is not None:  # the annotation follows
        start, end = text.span(there.returns)
        data = data[:start] + b"tuple" + data[end:]
    yield file.mutant("tuple of another length", node, there.name, file.text.data, **{path: data})


def _contexts(file: File, node: ast.With, code: Code) -> Iterator[Mutant]:
    for item in node.items:
        call = item.context_expr
        found = _sole(file, call, code) if isinstance(call, ast.Call) else None
        there = None if found is None else _decorated(found[1], "contextmanager")
        if (
            found is None
            or there is None
            or found[0] == file.path
            or len(found[1].decorator_list) > 1
        ):
            continue
        text = _Text(code.files[found[0]])
        new = text.put(text.at(there.lineno, 0), text.at(there.lineno + 1, 0), b"")
        yield file.mutant(
            "context manager gone", node, found[1].name, file.text.data, **{found[0]: new}
        )


def _more(file: File, kind: str, node: ast.Call, text: bytes) -> Iterator[Mutant]:
    """Give a call one argument more."""
    end = file.text.span(node)[1] - 1
    if not file.text.data[:end].rstrip().endswith(b",") and (node.args or node.keywords):
        if not any(isinstance(a, ast.GeneratorExp | ast.Starred) for a in node.args):
            what = f"{ast.unparse(node.func)[:50]}({text.decode()})"
            yield file.mutant(kind, node, what, file.text.put(end, end, b", " + text))


def _handed_over(file: File, node: ast.Call, code: Code) -> Iterator[Mutant]:
    """Calls that somebody else makes, or that a decorator or ``super()`` stands before."""
    name, head = last_name(node.func), ast.unparse(node.func)
    found = code.sole(name) if name in file.imported else None
    if found is not None and {last_name(d) for d in found[1].decorator_list} & {"cache", "lru_cache"}:  # fmt: skip
        if not found[1].args.kwarg:
            yield from _more(file, "cached function called wrongly", node, b"no_such=1")
    mine = file.scope(node, ast.ClassDef)
    own = code.members(mine) if isinstance(mine, ast.ClassDef) and code.bases(mine) else {}
    given = {k.arg: k.value for k in node.keywords}
    target, args = given.get("target"), given.get("args")
    there = own.get(last_name(target)) if name == "Thread" and target is not None else None
    if isinstance(there, ast.FunctionDef) and not there.args.vararg and not args:
        many = b"args=(" + b"None, " * (len(there.args.args) + 1) + b")"
        yield from _more(file, "thread with other arguments", node, many)
    above = [n for one in (code.bases(mine) or [])[1:] for n in one.body if getattr(n, "name", "") == name] if isinstance(mine, ast.ClassDef) else []  # fmt: skip
    if head == f"super().{name}" and above and isinstance(above[0], ast.FunctionDef):
        if not above[0].args.kwarg and not above[0].decorator_list and name != "__init__":
            yield from _more(file, "super().method() of another signature", node, b"no_such=1")
    if node in getattr(file.parents.get(node), "decorator_list", ()):
        known = code.sole(name) if name in file.imported else None
        if head == "dataclass" or (known and not known[1].args.kwarg):
            yield from _more(file, "keyword of a decorator", node, b"no_such=True")
    fake = given.get("fake_impl")
    there = next((n for n in file.tree.body if getattr(n, "name", "") == last_name(fake or node)), None)  # fmt: skip
    if name == "direct_register_custom_op" and isinstance(there, ast.FunctionDef):
        if there.args.args and not there.args.defaults:
            end = file.text.span(there.args.args[-1])[1]
            new = file.text.put(end, end, b", brand_new")
            yield file.mutant("fake of another signature", there, there.name, new)


def _moved_names(file: File, node: ast.AST, code: Code) -> Iterator[Mutant]:
    """Names of tables, of modules and of what a release renames."""
    if isinstance(node, ast.Call):
        yield from _handed_over(file, node, code)
    match node:
        case ast.Subscript(
            value=ast.Name(id=table), slice=ast.Constant(value=str(key)), ctx=ast.Load()
        ):
            for path in code.files if key and table.isupper() and table in file.imported else ():
                word = b'"%b":' % key.encode()
                head = re.search(rb"(?m)^%b\b[^\n]*= \{(?:\n[^}\n]*)*" % table.encode(), code.files[path])  # fmt: skip
                if head and path != file.path and word in head[0]:
                    new = code.files[path].replace(word, b'"%b_x":' % key.encode())
                    yield file.mutant("key of a table gone", node, f"{table}[{key!r}]", file.text.data, **{path: new})  # fmt: skip
        case ast.Attribute(value=ast.Name(id=module), ctx=ast.Load()) if module in {
            "os",
            "time",
            "json",
            "math",
            "threading",
            "asyncio",
            "functools",
            "re",
        } and any(isinstance(n, ast.Import) and n.names[0].name == module for n in file.tree.body):
            yield file.renamed("name of the standard library", node)
        case ast.ImportFrom(names=[ast.alias(name=name, asname=None)]) if node in file.tree.body:
            uses = [n for n in ast.walk(file.tree) if isinstance(n, ast.Name) and n.id == name]
            if node.module != "__future__" and any(file.scope(n, ast.FunctionDef) for n in uses):
                new = file.text.put(*file.text.span(node), b"pass")
                yield file.mutant("import dropped", node, name, new)
        case ast.FunctionDef(returns=ast.Constant(value=str(stated)) as place) if (
            stated.isidentifier()
        ):
            future = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in file.tree.body)  # fmt: skip
            if not future and stated == getattr(file.parents.get(node), "name", ""):
                new = file.text.put(*file.text.span(place), stated.encode())
                yield file.mutant("class named before it is made", node, stated, new)
        case _:
            pass


def _statements(file: File, node: FunctionNode, code: Code) -> Iterator[Mutant]:
    yield from file.before_body(
        "undefined global", node, "global _no_such_global", "_no_such_global += 1"
    )
    yield from file.before_body("with on an int", node, "steps = 3", "with steps:", "    pass")
    yield from file.before_body(
        "operator on wrong types", node, "steps = 3", "label = 'step ' + steps"
    )
    yield from file.before_body("call of what is no function", node, "steps = 3", "steps()")
    by_name = "import importlib", "importlib.import_module('vllm.no_such')"
    yield from file.before_body("module imported by its name", node, *by_name)
    for name in sorted(file.imported):
        found = code.cls(name)
        line = code.bases(found) if found is not None else None
        if found is None or line is None or not _is_a(found, code, "ABC"):
            continue
        if any(_decorated(m, "abstractmethod") for m in found.body):
            yield from file.before_body("abstract class made", node, f"made = {name}()")
            break
    parameters = {a.arg for a in [*node.args.args, *node.args.kwonlyargs]}
    for statement in node.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = statement.targets[0].id
        stores = [
            n
            for n in ast.walk(node)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        loads = [
            n
            for n in ast.walk(node)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        ]
        if len(stores) != 1 or name in parameters or not loads or statement is node.body[0]:
            continue
        yield from file.before_body("used before assignment", node, f"found = [{name}]")
        later = [
            s
            for s in node.body
            if s.lineno > statement.lineno and not isinstance(s, FunctionNode | ast.ClassDef)
        ]
        if any(n in set(ast.walk(s)) for s in later for n in loads):
            start = file.text.at((statement.end_lineno or 0) + 1, 0)
            new = f"{' ' * statement.col_offset}del {name}\n".encode()
            yield file.mutant("used after del", statement, name, file.text.put(start, start, new))
            first, last = (
                file.text.at(statement.lineno, 0),
                file.text.at((statement.end_lineno or 0) + 1, 0),
            )
            body = file.text.data[first:last].splitlines(keepends=True)
            pad = b" " * statement.col_offset
            new = pad + b"if len(__name__) > 3:\n" + b"".join(b"    " + one for one in body)
            yield file.mutant(
                "name unset on one path", statement, name, file.text.put(first, last, new)
            )
        break


def _stated(file: File, code: Code) -> Iterator[Mutant]:
    """Let a class move on, and its old module name it for type checkers only."""
    for node in (
        n for n in file.tree.body if isinstance(n, ast.ImportFrom) and n.lineno in file.added
    ):
        name = node.names[0].name
        found = code.cls(name)
        path = code.where[name][0][0] if found is not None else file.path
        if node.level or path != f"{(node.module or '').replace('.', '/')}.py" or path == file.path:
            continue
        new = (
            b"if TYPE_CHECKING:\n    from vllm.moved_on import %b\n\n\nclass _Older" % name.encode()
        )
        text = re.sub(rb"(?m)^class %b\b" % name.encode(), new, code.files[path], count=1)
        if found is not None and not found.decorator_list and text != code.files[path]:
            kind = "import moved under TYPE_CHECKING"
            yield file.mutant(kind, node, name, file.text.data, **{path: text})


def _whole(file: File, code: Code) -> Iterator[Mutant]:
    yield from _stated(file, code)
    dotted = file.path.removesuffix(".py").replace("/", ".")
    first = next(
        (
            n
            for n in file.tree.body
            if isinstance(n, ast.ImportFrom) and n.module and n.module.startswith("vllm")
        ),
        None,
    )
    for other, name in code.importers.get(dotted, ())[:1]:
        mine = next((n for n in code.trees[other].body if isinstance(n, ast.ClassDef)), None)
        defined = any(getattr(n, "name", "") == name for n in file.tree.body)
        if mine is not None and defined and first is not None and not other.endswith("__init__.py"):
            start = file.text.at(first.lineno, 0)
            module = other.removesuffix(".py").replace("/", ".")
            new = f"from {module} import {mine.name}\n".encode()
            yield file.mutant(
                "circular import", first, f"{module}.{mine.name}", file.text.put(start, start, new)
            )
    yield file.mutant(
        "file that nothing imports", file.tree, "", b'"""Alone."""\n\n\ndef run(): ...\n', NEW=b""
    )
