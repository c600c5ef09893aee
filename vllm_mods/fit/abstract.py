"""Classes that leave some of their bases' abstract methods open, so that nobody can make one."""

import ast
import re

from vllm_mods.base.model import Level
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.problems import Misuse, Misuses
from vllm_mods.fit.search import class_named, classes_in, is_mentioned, subclasses
from vllm_mods.fit.shapes import Symbol
from vllm_mods.fit.walk import CodeSite
from vllm_mods.fit.world import World


def abstract_methods(world: World, symbol: Symbol) -> dict[str, Symbol]:
    """Return the abstract methods that a class leaves open, where Python holds it to them."""
    line = lineage(world, symbol)
    metas = {one.cls.metaclass for one in line.classes}
    if line.outside or ("ABC" not in line.bases and metas.isdisjoint(("ABCMeta", "abc.ABCMeta"))):
        return {}
    open_: dict[str, Symbol] = {}
    for owner in reversed(line.classes):
        for name in owner.cls.attributes:
            open_.pop(name, None)
            if _is_abstract(owner, name):
                open_[name] = owner
    return open_


def _is_abstract(symbol: Symbol, name: str) -> bool:
    return any("abstractmethod" in f.marks for f in symbol.cls.methods.get(name, ()))


def abstract_misuses(world: World, path: str, site: CodeSite, at_origin: World | None) -> Misuses:
    """Say that a class at the end of its line leaves some of its base's abstract methods open.

    A class may only hold static methods: where nobody calls it by its name, and it was not as open where the patch was
    written (``at_origin`` has the patch in that tree), that is a note.
    """
    node = site.node
    if not isinstance(node, ast.ClassDef):
        return
    name = f"{site.scope.name}.{node.name}".lstrip(".")
    symbol = class_named(world, path, name, node.lineno)
    if symbol is None:
        return
    left = abstract_methods(world, symbol)
    above = lineage(world, symbol).classes[1:]
    asked = {m for one in above for m in one.cls.methods if _is_abstract(one, m)}
    if (
        not left
        or symbol in left.values()
        or not asked & symbol.cls.methods.keys()
        or subclasses(world, symbol)
    ):
        return
    call = re.compile(rb"(?<!class )\b%b\(" % node.name.encode())
    is_news = at_origin is not None and _is_whole(at_origin, path, name)
    level = Level.ERROR if is_news or is_mentioned(world, node.name, call) else Level.NOTE
    method, owner = min(left.items())
    asks = f"{owner.path}:{owner.cls.methods[method][0].line} asks for"
    yield Misuse(
        f"{node.name} cannot be instantiated: it has no {method}, which {asks}", node.name, level
    )


def _is_whole(world: World, path: str, name: str) -> bool:
    """Tell whether a class of a file, by its dotted name, leaves no abstract method open."""
    classes = dict(classes_in(world, path))
    return name in classes and not abstract_methods(world, classes[name])
