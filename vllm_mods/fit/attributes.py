"""Whether what code reads on something of a known class is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Doubt, Misuse, Problem, at_site, nearest
from vllm_mods.fit.search import candidates, files_mentioning, subclasses
from vllm_mods.fit.signatures import dotted, every
from vllm_mods.fit.symbols import Lineage, Symbol, Thing, builtin
from vllm_mods.fit.walk import CodeScope, CodeSite, walk
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree


def attribute_problems(  # noqa: C901 - the questions in their order
    inference: Inference, sites: Iterable[CodeSite]
) -> Iterator[Problem | Doubt]:
    """Judge every attribute that some sites read on something whose class is known."""
    doubted: set[Symbol] = set()
    seen: set[tuple[Symbol, str]] = set()
    for site in sites:
        node = site.node.target if isinstance(site.node, ast.AugAssign) else site.node
        if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
            continue  # a double underscore belongs to Python or is mangled: neither is listed
        if node is site.node and not isinstance(node.ctx, ast.Load):
            continue
        things = inference.infer(node.value, site.scope)
        plain = [builtin(thing) for thing in things]
        if plain and None not in plain:
            if not any(hasattr(kind, node.attr) for kind in plain):
                kinds = " or ".join(sorted({kind.__name__ for kind in plain if kind}))
                yield _problem(inference, site, node, f"a {kinds} has no {node.attr}")
            continue
        if not things or any(thing.kind not in {"instance", "class", "super"} for thing in things):
            continue
        mine = isinstance(node.value, ast.Name) and node.value.id == "self"
        answers = [missing(inference.world, thing, node.attr, mine=mine) for thing in things]
        symbol = things[0].symbol
        if None in answers or (symbol, node.attr) in seen:
            continue
        seen.add((symbol, node.attr))
        if _asked_for(site.scope, node.attr) or narrowed(site.scope, node.value):
            continue
        why = next((answer.why for answer in answers if answer and answer.why), "")
        if why:
            if symbol not in doubted and mine:
                yield Doubt(path=inference.path, what="attribute", why=why)
            doubted.add(symbol)
            continue
        yield _problem(inference, site, node, answers[0].text if answers[0] else "")


class Absence(NamedTuple):
    """An attribute that a class does not have: what it has instead, or why it may be there."""

    text: str = ""
    why: str = ""


def missing(world: World, thing: Thing, name: str, *, mine: bool = False) -> Absence | None:
    """Look for an attribute on a thing with a class; ``None`` if it is there.

    ``mine`` says that a method looks on its own receiver, of which the class knows most.
    """
    symbol = thing.symbol
    line = lineage(world, symbol)
    if thing.kind == "super":
        line = line._replace(classes=line.classes[1:])
        if any(len(other.cls.bases) > 1 for other in subclasses(world, symbol)):
            return Absence(why="super() goes to one of several bases")
    names, why = attributes(world, line)
    if name in names or (thing.kind == "class" and hasattr(type, name)):
        return None
    if thing.kind == "instance" and not mine:
        why = why or _more(world, line, name)
    why = why or ("" if thing.kind == "super" else _set_elsewhere(world, thing, name))
    text = f"{line.classes[0].text} has no {name}"
    return Absence(text=text + nearest(name, names), why=why)


def _more(world: World, line: Lineage, name: str) -> str:
    """Say why an instance that others made may have more than its class says."""
    if "Protocol" in line.bases:
        return "a protocol says only the least of what there is"
    if line.torch:
        # Packages outside set attributes of layers: one that is read elsewhere may be such.
        read = re.compile(rb"\.%b\b" % re.escape(name.encode()))
        files = files_mentioning(world, (name,))
        if sum(len(read.findall(data)) for _, data in files) > 1:
            return "the tree reads it in several places"
    return ""


def _problem(inference: Inference, site: CodeSite, node: ast.Attribute, text: str) -> Problem:
    message = f"{ast.unparse(node)[:60]} is read, and {text}"
    key = text.partition(" ")[0], node.attr
    return at_site(
        inference.path, site, FindingCode.FIT_ATTRIBUTE, Misuse(message, node.attr), *key
    )


def narrowed(scope: CodeScope, value: ast.expr) -> bool:
    """Tell whether the function asks which class a value is of, so that its type says too little."""
    asked = ast.dump(value)
    for node in _function_nodes(scope):
        subject = node.subject if isinstance(node, ast.Match) else None
        if isinstance(node, ast.Call) and dotted(node.func) in {"isinstance", "type", "issubclass"}:
            subject = node.args[0] if node.args else None
        if subject is not None and ast.dump(subject) == asked:
            return True
    return False


def _asked_for(scope: CodeScope, name: str) -> bool:
    """Tell whether the function asks ``hasattr(…, name)`` first."""
    for node in _function_nodes(scope):
        if isinstance(node, ast.Call) and dotted(node.func) in {"hasattr", "getattr"}:
            second = node.args[1] if len(node.args) > 1 else None
            if isinstance(second, ast.Constant) and second.value == name:
                return True
    return False


def _function_nodes(scope: CodeScope) -> Iterator[ast.AST]:
    """Yield the nodes of the function that a scope belongs to, and of those around it."""
    for outer in scope.in_function():
        yield from every(outer.node)


def _set_elsewhere(world: World, thing: Thing, name: str) -> str:
    """Say who else may set an attribute: a subclass, a mixin beside it, or code outside."""
    symbol = thing.symbol
    for other in () if thing.exact else subclasses(world, symbol):
        names, why = attributes(world, lineage(world, other))
        if name in names:
            return f"{other.cls.name} ({other.path}) has {name}"
        if why:
            return f"of its subclass {other.cls.name}: {why}"
    if not candidates(world, (symbol.path,))[1]:
        return "only a part of this remote tree was searched for who sets it"
    return _set_by_text(world, symbol, name)


def _set_by_text(world: World, symbol: Symbol, name: str) -> str:
    torch, word = lineage(world, symbol).torch, re.escape(name.encode())
    stores = re.compile(rb"\b(?!self\b)\w+\.%b\s*(?::[^=\n]+)?=[^=]" % word)
    # ``replace_parameter(layer, "weight", …)``, ``setattr(layer, "weight", …)``
    quoted = re.compile(rb"(?<!hasattr)(?<!getattr)\(\s*\w[\w.]*\s*,\s*[\"']%b[\"']" % word)
    mine = symbol.cls.name.encode()
    registered = re.compile(
        rb"\.(?:register_\w+|add_module)\(\s*[\"']%b[\"']" % word  # on a layer, not on self
    )
    for path, data in files_mentioning(world, (name,), (symbol.path,)):
        related = torch or mine in data
        if torch and (quoted.search(data) or registered.search(data)):
            return f"{path} may set {name} by its name"
        if related and stores.search(data) and _stores(world, path, data, symbol, name):
            return f"{path} may set {name} from outside"
    return ""


def _stores(world: World, path: str, data: bytes, symbol: Symbol, name: str) -> bool:
    """Tell whether a file sets the attribute on something that may be such an instance."""
    tree = syntax_tree.module(data)
    if tree is None:
        return False
    inference = Inference(world, path)
    family = set(lineage(world, symbol).classes) | set(subclasses(world, symbol))
    token = name.encode()
    lines = frozenset(n for n, line in enumerate(data.splitlines(), 1) if token in line)
    for site in walk(tree, lines):
        match site.node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=value, attr=attr, ctx=ast.Store()) if attr == name:
                things = inference.infer(value, site.scope)
                if any(thing.kind == "unknown" or thing.symbol in family for thing in things):
                    return True
    return False
