"""What a variant says it needs of the tree, in its own words."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Expectation
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.shapes import Class, Function
from vllm_mods.fit.signatures import parameters_of
from vllm_mods.fit.symbols import Symbol
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree


def expectation_problems(world: World, expects: Iterable[Expectation]) -> Iterator[Problem]:
    """Judge each expectation on the tree before the patch."""
    for expect in expects:
        why, line = _judge(world, expect)
        if why:
            path, symbol = expect.path, expect.symbol
            message, key = f"the mod expects {symbol}, {why}", (path, symbol, why)
            yield Problem(FindingCode.FIT_EXPECTS, path, line, symbol, message, key, token=symbol)


def _judge(world: World, expect: Expectation) -> tuple[str, int]:
    if world.module(expect.path) is None:
        return "and the tree has no such module (or it does not parse)", 1
    symbols = _find(world, expect)
    if not symbols:
        return "which is not there", 1
    line = min(getattr(one.binding, "line", 1) for one in symbols)
    if expect.signature is not None:
        signatures = [one.binding for one in symbols if isinstance(one.binding, Function)]
        if not any(_matches(signature, expect.signature) for signature in signatures):
            has = ", ".join(signature.text() for signature in signatures) or "no signature"
            return f"with the signature {expect.signature}, and it has {has}", line
    if expect.base is not None and not _has_base(world, symbols, expect.base):
        return f"with the base {expect.base}, which it does not have", line
    return "", line


def _find(world: World, expect: Expectation) -> tuple[Symbol, ...]:
    head, *rest = expect.symbol.split(".")
    symbols = world.lookup(expect.path, head).symbols
    for index, part in enumerate(rest):
        last = index == len(rest) - 1
        symbols = tuple(
            member
            for one in symbols
            if isinstance(one.binding, Class)
            for member in _member(lineage(world, one).classes, part, last=last)
        )
    return symbols


def _member(classes: tuple[Symbol, ...], name: str, *, last: bool) -> list[Symbol]:
    """Return what the first of some classes that has such a member has there: a class, or what comes ``last``."""
    for owner in classes:
        if last and name in owner.cls.methods:
            return [Symbol(owner.path, method) for method in owner.cls.methods[name]]
        if name in owner.cls.nested:
            return [Symbol(owner.path, owner.cls.nested[name])]
        if last and name in owner.cls.attributes:
            return [Symbol(owner.path)]
    return []


def _matches(function: Function, signature: str) -> bool:
    """Compare names and kinds; which parameters are optional only if the expectation says."""
    try:
        node = syntax_tree.parse(f"def f{signature.strip()}: ...").body[0]
    except (SyntaxError, ValueError):
        return False
    if not isinstance(node, ast.FunctionDef):
        return False
    wanted = parameters_of(node.args)
    plain = not node.args.defaults and not any(node.args.kw_defaults)
    return [(p.name, p.kind, plain or p.required) for p in wanted] == [
        (p.name, p.kind, plain or p.required) for p in function.parameters
    ]


def _has_base(world: World, symbols: tuple[Symbol, ...], base: str) -> bool:
    lines = [lineage(world, one) for one in symbols if isinstance(one.binding, Class)]
    written = {name for line in lines for one in line.classes for name in one.cls.bases}
    return base in written or any(base in line.bases for line in lines)
