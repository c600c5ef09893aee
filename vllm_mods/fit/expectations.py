"""What a variant says it needs of the tree, in its own words."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from vllm_mods.base.model import Expectation
from vllm_mods.fit.found import Symbol
from vllm_mods.fit.hierarchy import lineage
from vllm_mods.fit.problems import Problem
from vllm_mods.fit.shapes import Class, Function
from vllm_mods.fit.signatures import parameters_of
from vllm_mods.fit.world import World
from vllm_mods.formats import syntax_tree


def expectation_problems(world: World, expects: Iterable[Expectation]) -> Iterator[Problem]:
    """Judge each expectation on the tree before the patch."""
    for expect in expects:
        why, line = _judge(world, expect)
        if why:
            yield Problem(
                code="fit-expects",
                key=("fit-expects", expect.path, expect.symbol, why),
                token=expect.symbol,
                path=expect.path,
                line=line,
                scope=expect.symbol,
                message=f"the mod expects {expect.symbol}, {why}",
            )


def _judge(world: World, expect: Expectation) -> tuple[str, int]:
    module = world.module(expect.path)
    if module is None:
        return "and the tree has no such module (or it does not parse)", 1
    found = _find(world, expect)
    if not found:
        return "which is not there", 1
    line = min(getattr(one.binding, "line", 1) for one in found)
    if expect.signature is not None:
        signatures = [one.binding for one in found if isinstance(one.binding, Function)]
        if not any(_matches(signature, expect.signature) for signature in signatures):
            has = ", ".join(signature.text() for signature in signatures) or "no signature"
            return f"with the signature {expect.signature}, and it has {has}", line
    if expect.base is not None and not _has_base(world, found, expect.base):
        return f"with the base {expect.base}, which it does not have", line
    return "", line


def _find(world: World, expect: Expectation) -> tuple[Symbol, ...]:
    head, *rest = expect.symbol.split(".")
    found = world.lookup(expect.path, head).found
    for index, part in enumerate(rest):
        following: list[Symbol] = []
        for one in found:
            if not isinstance(one.binding, Class):
                continue
            for owner in lineage(world, one).classes:
                binding = owner.cls
                last = index == len(rest) - 1
                if last and part in binding.methods:
                    following += [Symbol(path=owner.path, binding=m) for m in binding.methods[part]]
                elif part in binding.nested:
                    following.append(Symbol(path=owner.path, binding=binding.nested[part]))
                elif last and part in binding.attributes:
                    following.append(Symbol(path=owner.path))
                if following:
                    break
        found = tuple(following)
    return found


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


def _has_base(world: World, found: tuple[Symbol, ...], base: str) -> bool:
    for one in found:
        if not isinstance(one.binding, Class):
            continue
        for ancestor in lineage(world, one).classes:
            binding = ancestor.cls
            names = {b.rpartition(".")[2] for b in binding.bases} | set(binding.bases)
            if base in names:
                return True
    return False
