"""What changed code writes on classes and modules while it runs, and which problems may rest on that.

``Class.name = f``, ``module.name = g``, ``setattr(…)``, ``vars(module)["name"] = g``, ``sys.modules["x"] = y`` and the like. A
problem of what is written is a note, unless it stands where the write cannot have run before.
"""

import ast
import re
from collections.abc import Iterator
from inspect import Parameter
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.lines import rows
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.search import files_mentioning, meant_in, subclasses
from vllm_mods.fit.shapes import Class, Symbol, words
from vllm_mods.fit.signatures import DefNode, ScopeNode, dotted, every
from vllm_mods.fit.walk import CodeScope, local_names, receiver, walk
from vllm_mods.fit.world import World, module_stem, remembered
from vllm_mods.formats import syntax_tree

RESTING = {
    FindingCode.FIT_ATTRIBUTE,
    FindingCode.FIT_CALL,
    FindingCode.FIT_IMPORT,
    FindingCode.FIT_KIND,
    FindingCode.FIT_TYPES,
}
"""The codes of what a line does with what there is."""
_MAKERS = words(
    "__init__ __new__ __call__ __getattr__ __getattribute__ __bases__ __class__ __abstractmethods__"
)
_SETTERS = words("setattr type.__setattr__ object.__setattr__ mock.patch.object patch.object")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_QUOTED = re.compile(r"`(?:\w+\.)*(\w+)`")
_KEYWORD = re.compile(r"(?:^[Aa]rgument|required parameters?) `(\w+)`")
_PLACED = re.compile(r"\b(\w+) \([\w/]+\.py:\d+\)")  # the class that is meant, with its place
_MODULE = re.compile(r"[Mm]odule `|cannot import |\.py does not define ")
_CALLED = re.compile(r"`?(\w+)\(")


class Write(NamedTuple):
    """One write: ``name`` is ``None`` where only the run knows it, ``value`` where it is not plain."""

    path: str
    node: ast.stmt | ast.expr
    scope: CodeScope
    owner: ast.expr
    name: str | None
    value: ast.expr | None

    def owners(self, world: World) -> tuple[Symbol, ...]:
        """Return the classes and modules that are written to; of a parameter, what such a function is called with."""
        if isinstance(self.owner, ast.Constant):
            return _by_name(world, str(self.owner.value))
        name = dotted(self.owner)
        if name is None:
            return ()
        head = name.partition(".")[0]
        parameters = [one for one in self.scope.in_function() if _takes(one, head)]
        if parameters and head != name:
            return ()
        if not parameters:
            return meant_in(world, self.path, self.scope, name)
        arguments = _arguments(parameters[0], name)
        named = (meant_in(world, self.path, scope, text) for scope, text in arguments)
        return tuple(symbol for symbols in named for symbol in symbols)


def soften(world: World, problem: Problem) -> Problem:
    """Return a problem as a note, if what is written may be the reason for it."""
    if problem.level is Level.NOTE or problem.code not in RESTING:
        return problem
    # without the code that the type checker's words are about
    text = problem.message.partition("`: ")[2] or problem.message
    about = {problem.token, *_QUOTED.findall(text), *_PLACED.findall(text)}
    about -= {*_KEYWORD.findall(text)}  # of a call: no attribute
    for write in all_writes(world):
        is_about = write.name is None or write.name in _MAKERS or write.name in about
        what = _resting(world, problem, write, text) if is_about else ""
        if what and (write.name in _MAKERS or _may_run_first(world, problem, write)):
            message = f"{problem.message} ({what} changed at run time)"
            return problem._replace(level=Level.NOTE, message=message)
    return problem


@remembered
def all_writes(world: World) -> tuple[Write, ...]:
    """Return what the changed files write."""
    found: list[Write] = []
    for path, data in world.files.items():
        tree = syntax_tree.module(data) if path.endswith(".py") and data else None
        nodes = every(tree) if tree else ()
        at = frozenset(getattr(node, "lineno", 0) for node in nodes if any(_writes(node)))
        found += run_time_writes(path, data or b"", at)
    return tuple(found)


def run_time_writes(path: str, data: bytes, lines: frozenset[int]) -> Iterator[Write]:
    """Yield what some lines of a file write on classes and modules, and on what is handed around."""
    tree = syntax_tree.module(data) or ast.Module([], [])
    for site in walk(tree, lines):
        if site.node.lineno not in lines:
            continue
        own = {receiver(scope) for scope in site.scope.around()}
        for owner, name, value in _writes(site.node):
            if getattr(owner, "id", "") not in own:
                known = name if name and name.isidentifier() else None
                yield Write(path, site.node, site.scope, owner, known, value)


_Pair = tuple[ast.expr, str | None, ast.expr | None]


def _writes(node: ast.AST) -> Iterator[_Pair]:
    """Yield what is written to, the attribute, and its value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _stored(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from _stored(target, value)
        case ast.Call(func=function, args=[owner, key, *rest]) if dotted(function) in _SETTERS:
            yield owner, _literal(key), rest[0] if rest else None
        case ast.Call(func=ast.Attribute(value=table, attr="update")) if whose := _owner_of(table):
            yield whose, None, None
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *rest]):
            if dotted(function) in {"mock.patch", "patch"} and "." in name:
                owner_name, _, attribute = name.rpartition(".")
                yield ast.Constant(owner_name), attribute, rest[0] if rest else None
        case _:
            pass


def _stored(target: ast.expr, value: ast.expr | None) -> Iterator[_Pair]:
    match target:
        case ast.Tuple(elts=several) | ast.List(elts=several):
            for part in several:
                yield from _stored(part, None)
        case ast.Attribute(value=owner, attr=name):
            yield owner, name, value
        case ast.Subscript(value=table, slice=key) if whose := _owner_of(table):
            yield whose, _literal(key), value
        case ast.Subscript(value=table, slice=ast.Constant() as key):
            if dotted(table) == "sys.modules":
                yield key, None, None
        case _:
            pass


def _owner_of(table: ast.expr) -> ast.expr | None:
    """Return what a table is the attributes of: ``vars(owner)``, ``owner.__dict__``."""
    match table:
        case (
            ast.Call(func=ast.Name(id="vars"), args=[owner])
            | ast.Attribute(value=owner, attr="__dict__")
        ):
            return owner
        case _:
            return None


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


# --- whose attributes they are


def _by_name(world: World, name: str) -> tuple[Symbol, ...]:
    """Return the module that a dotted name is of, or what it names in one."""
    where = world.locate(name)
    if where.exists is False and "." in name:
        module, _, last = name.rpartition(".")
        return tuple(s for one in _by_name(world, module) for s in world.member(one, last).symbols)
    return where.symbols if where.exists else ()


def _takes(scope: CodeScope, name: str) -> bool:
    return any(isinstance(one, Parameter) for one in local_names(scope.node).get(name, ()))


def _arguments(taker: CodeScope, name: str) -> Iterator[tuple[CodeScope, str]]:
    """Yield what a parameter may be, as a text in its scope: what it is stated to be, or what such functions are given."""
    args = getattr(taker.node, "args", ast.arguments([], [], None, [], [], None, []))
    for arg in every(args):
        if isinstance(arg, ast.arg) and arg.arg == name and (stated := dotted(arg.annotation)):
            yield taker, stated
            return
    *inner, module = taker.around()
    functions = {getattr(one.node, "name", "") for one in inner} - {""}
    for call in (node for node in every(module.node) if isinstance(node, ast.Call)):
        if (dotted(call.func) or "").rpartition(".")[2] in functions:
            yield from ((module, text) for text in map(dotted, call.args) if text)


def _family(world: World, write: Write) -> frozenset[str] | None:
    """Return the words by which a message tells of what is written to, ``None`` where that is not known."""
    if isinstance(write.owner, ast.Constant):
        return frozenset((str(write.owner.value).rpartition(".")[2],))
    names: set[str] = set()
    for symbol in write.owners(world):
        if isinstance(symbol.binding, Class):
            kin = (*lineage(world, symbol).classes, *subclasses(world, symbol))
            names.update(one.cls.name for one in kin)
        elif symbol.module:
            names.add(module_stem(symbol.module.rstrip("/")))
        else:
            return None
    return frozenset(names) or None


def _resting(world: World, problem: Problem, write: Write, text: str) -> str:
    """Say what of a problem, by its text, a write may be the reason for, ``""`` if nothing."""
    is_maker = write.name is None or write.name in _MAKERS
    family = _family(world, write)
    if family is None:
        # what is written on one of a class does not stand in for what vLLM set on all
        was = files_mentioning(world.origin, (write.name or "",)) if world.origin else ()
        is_attribute = problem.code is FindingCode.FIT_ATTRIBUTE
        gone = is_attribute and any(path not in world.files for path, _ in was)
        return "" if is_maker or gone else f"{write.name} is"
    if owner := next(iter(sorted(family.intersection(re.findall(r"\w+", text)))), ""):
        return f"attributes of {owner} are" if is_maker else f"{write.name} is"
    of_module = any(one.module for one in write.owners(world))
    return f"{write.name} is" if of_module and not is_maker and not _MODULE.search(text) else ""


# --- when it runs


def _may_run_first(world: World, problem: Problem, write: Write) -> bool:
    """Tell whether a write may have run before what a problem is of."""
    if write.path != problem.path:
        return True
    tree = syntax_tree.module(world.glance(write.path) or b"") or ast.Module([], [])
    line = _read_at(tree, problem, write)
    functions = (node for node in every(tree) if isinstance(node, DefNode | ast.Lambda))
    around = [node for node in functions if line in rows(node)]
    scopes = [one.node for one in write.scope.around()]
    body = next(node for node in scopes if isinstance(node, DefNode | ast.Lambda | ast.Module))
    here = max(around, key=lambda node: node.lineno, default=tree)
    if getattr(body, "lineno", 0) == getattr(here, "lineno", 0):
        return _comes_before(body, write.node, line)
    outer = next((node for node in reversed(scopes) if isinstance(node, ScopeNode)), None)
    if around or outer is None:
        return True  # whoever calls the functions knows
    named = (one for one in every(tree) if isinstance(one, ast.Name) and one.id == outer.name)
    return any(one.lineno <= line and one.lineno not in rows(outer) for one in named)


def _read_at(tree: ast.Module, problem: Problem, write: Write) -> int:
    """Return the line of a problem, or that on which a name that is called was given what is written later."""
    called = _CALLED.match(problem.message)
    lines = [problem.line]
    for node in every(tree) if called else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr=attribute)):
                if called and (name, attribute) == (called[1], write.name):
                    lines.append(node.lineno)
            case _:
                pass
    return max((line for line in lines if line < problem.line), default=problem.line)


def _comes_before(body: ast.AST, write: ast.stmt | ast.expr, line: int) -> bool:
    """Tell whether a write comes before a line of the same body: in a round of a loop it always may."""
    blocks = [node for node in every(body) if isinstance(node, (ast.If, *_LOOPS))]
    both = [node for node in blocks if line in rows(node) and write.lineno in rows(node)]
    if any(isinstance(node, _LOOPS) for node in both):
        return True
    ifs = (one for one in both if isinstance(one, ast.If) and line not in rows(one.test))
    lines = (line, write.lineno)
    sides = ({any(n in rows(one) for one in node.body) for n in lines} for node in ifs)
    return (write.end_lineno or write.lineno) < line and all(len(side) == 1 for side in sides)
