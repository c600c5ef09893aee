"""Whether calls bind to what the tree defines."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.fit.binding import CallShape, opaque_decorator, refusal, shape_of, unbound
from vllm_mods.fit.constructors import constructor
from vllm_mods.fit.families import overriding, subclasses
from vllm_mods.fit.found import Thing
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.problems import Doubt, Problem, at_site
from vllm_mods.fit.signatures import call_text
from vllm_mods.fit.walk import CodeSite
from vllm_mods.fit.world import World

_BUILTIN_METHODS = frozenset(
    name for kind in (dict, list, str, set, tuple, bytes) for name in dir(kind)
)


class _No(NamedTuple):
    why: str
    where: str
    what: str


def call_problems(inference: Inference, sites: Iterable[CodeSite]) -> Iterator[Problem | Doubt]:
    """Judge every call among some sites."""
    for site in sites:
        if isinstance(site.node, ast.Call) and not site.scope.tolerant:
            answer = _judge(inference, site.node, site)
            if answer is not None:
                yield answer


def _judge(inference: Inference, node: ast.Call, site: CodeSite) -> Problem | Doubt | None:
    if isinstance(node.func, ast.Name) and node.func.id == "super":
        return None
    shape = shape_of(node)
    things = inference.infer(node.func, site.scope)
    if any(thing.found.external for thing in things):
        return None
    answers = [_of_thing(inference.world, thing, shape) for thing in things]
    noes = [answer for answer in answers if isinstance(answer, _No)]
    if not answers or None in answers:
        return None
    for thing, answer in zip(things, answers, strict=True):
        if isinstance(answer, str):
            # Nearly always a list, string or dictionary: not worth a note.
            usual = getattr(node.func, "attr", "") in _BUILTIN_METHODS and thing.kind == "unknown"
            return None if usual else Doubt(path=inference.path, what="call", why=answer)
    no = noes[0]
    text = call_text(node)
    token = text.rpartition(".")[2].rstrip("()")
    message = f"the call of {text} {no.why}: {no.where} defines {no.what}"
    key = site.scope.name, text, no.why
    return at_site(inference.path, site, token, message, *key, code="fit-call")


def _of_thing(  # noqa: PLR0911 - an answer per kind of thing
    world: World, thing: Thing, shape: CallShape
) -> _No | str | None:
    """Return a refusal, the reason why it can't be told, or ``None`` if the call binds."""
    if thing.kind == "class":
        return _of_class(world, thing, shape)
    if thing.kind != "function":
        return thing.why or f"what is called is not a function but a {thing.kind}"
    function = thing.function
    opaque = opaque_decorator(function)
    if opaque is not None:
        return f"the function is decorated with {opaque}"
    parameters = unbound(function) if thing.bound else function.parameters
    why = refusal(parameters, shape)
    if why is None:
        return None
    if thing.owner is not None and not thing.exact:
        # What is called may be an override.
        if function.abstract:
            return "the method is abstract"
        if any(refusal(unbound(other), shape) is None for other in overriding(world, thing)):
            return "a subclass accepts the call"
    owner = f"{thing.owner.cls.name}." if thing.owner is not None else ""
    return _No(why, thing.found.where, f"{owner}{function.name}{function.text()}")


def _of_class(world: World, thing: Thing, shape: CallShape) -> _No | str | None:
    made = constructor(world, thing.found)
    why = None if made.parameters is None else refusal(made.parameters, shape)
    if why is None:
        return made.why or None
    if not thing.exact and any(
        refusal(constructor(world, other).parameters or (), shape) is None
        for other in subclasses(world, thing.found)
    ):
        return "a subclass accepts the call"
    return _No(why, f"{made.path}:{made.line}", f"{thing.found.cls.name}{made.text}")
