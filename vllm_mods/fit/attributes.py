"""Whether what code reads on ``self`` is there."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from vllm_mods.fit.families import class_at, subclasses
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.fit.search import candidates, files_mentioning
from vllm_mods.fit.signatures import dotted, every
from vllm_mods.fit.walk import receiver, walk
from vllm_mods.formats import syntax_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_mods.fit.found import Symbol
    from vllm_mods.fit.walk import CodeScope, CodeSite
    from vllm_mods.fit.world import World


def attribute_problems(
    inference: Inference, sites: Iterable[CodeSite]
) -> Iterator[Problem | Doubt]:
    """Judge every attribute of the receiver that some sites read."""
    world = inference.world
    doubted: set[Symbol] = set()
    seen: set[tuple[Symbol, str]] = set()
    for site in sites:
        node = site.node.target if isinstance(site.node, ast.AugAssign) else site.node
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node is site.node and not isinstance(node.ctx, ast.Load):
            continue
        if site.scope.tolerant or site.scope.typing_only:
            continue
        found = _class_of(inference, node.value.id, site.scope)
        if found is None or (found, node.attr) in seen:
            continue
        seen.add((found, node.attr))
        names, why = attributes(world, lineage(world, found))
        # A double underscore belongs to Python or is mangled: neither is listed.
        if node.attr in names or node.attr.startswith("__"):
            continue
        if _asked_for(site.scope, node.attr):
            continue
        why = why or _set_elsewhere(world, found, node.attr)
        if why:
            if found not in doubted:
                yield Doubt(path=inference.path, what="attribute", why=why)
            doubted.add(found)
            continue
        yield _problem(inference, site, node, found)


def _problem(inference: Inference, site: CodeSite, node: ast.Attribute, found: Symbol) -> Problem:
    name = found.cls.name
    return Problem(
        code="fit-attribute",
        key=("fit-attribute", name, node.attr),
        token=node.attr,
        path=inference.path,
        line=node.lineno,
        scope=site.scope.name,
        message=(
            f"{ast.unparse(node)} is read, and neither {name} ({found.path}:{found.cls.line})"
            f" nor a base or subclass of it sets {node.attr}"
        ),
    )


def _class_of(inference: Inference, name: str, scope: CodeScope) -> Symbol | None:
    """Return the class whose instance ``name`` is as a method's first parameter."""
    current: CodeScope | None = scope
    while current is not None and not isinstance(current.node, ast.Module):
        if not current.is_class and name in current.locals():
            me = receiver(current)
            if me is None or me[0] != name or me[1] != "instance":
                return None
            if len(current.locals()[name]) != 1:
                return None
            return class_at(inference.world, inference.path, current.parent)
        current = current.parent
    return None


def _asked_for(scope: CodeScope, name: str) -> bool:
    """Tell whether the function asks ``hasattr(…, name)`` first."""
    current: CodeScope | None = scope
    while current is not None and not isinstance(current.node, ast.Module | ast.ClassDef):
        for node in every(current.node):
            if isinstance(node, ast.Call) and dotted(node.func) in {"hasattr", "getattr"}:
                second = node.args[1] if len(node.args) > 1 else None
                if isinstance(second, ast.Constant) and second.value == name:
                    return True
        current = current.parent
    return False


def _set_elsewhere(world: World, found: Symbol, name: str) -> str:
    """Say who else may set an attribute: a subclass, a mixin beside it, or code outside."""
    for other in subclasses(world, found):
        names, why = attributes(world, lineage(world, other))
        if name in names:
            return f"{other.cls.name} ({other.path}) has {name}"
        if why:
            return f"of its subclass {other.cls.name}: {why}"
    torch = lineage(world, found).torch
    if not candidates(world, (found.path,))[1]:
        return "only a part of this remote tree was searched for who sets it"
    return _set_by_text(world, found, name, torch=torch)


def _set_by_text(world: World, found: Symbol, name: str, *, torch: bool) -> str:
    word = re.escape(name.encode())
    stores = re.compile(rb"\b(?!self\b)\w+\.%b\s*(?::[^=\n]+)?=[^=]" % word)
    # ``replace_parameter(layer, "weight", …)``, ``setattr(layer, "weight", …)``
    quoted = re.compile(rb"(?<!hasattr)(?<!getattr)\(\s*\w[\w.]*\s*,\s*[\"']%b[\"']" % word)
    mine = found.cls.name.encode()
    registered = re.compile(
        rb"\.(?:register_\w+|add_module)\(\s*[\"']%b[\"']" % word  # on a layer, not on self
    )
    for path, data in files_mentioning(world, frozenset((name.encode(),)), (found.path,)):
        related = torch or mine in data
        if torch and (quoted.search(data) or registered.search(data)):
            return f"{path} may set {name} by its name"
        if related and stores.search(data) and _stores(world, path, data, found, name):
            return f"{path} may set {name} from outside"
    return ""


def _stores(world: World, path: str, data: bytes, found: Symbol, name: str) -> bool:
    """Tell whether a file sets the attribute on something that may be such an instance."""
    tree = syntax_tree.module(data)
    if tree is None:
        return False
    inference = Inference(world, path)
    family = set(lineage(world, found).classes) | set(subclasses(world, found))
    token = name.encode()
    lines = frozenset(n for n, line in enumerate(data.splitlines(), 1) if token in line)
    for site in walk(tree, lines):
        node = site.node
        if not isinstance(node, ast.Attribute) or node.attr != name:
            continue
        if not isinstance(node.ctx, ast.Store):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            continue
        for thing in inference.infer(node.value, site.scope):
            if thing.kind == "unknown" or thing.found in family:
                return True
    return False
