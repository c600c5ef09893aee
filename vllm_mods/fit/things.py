"""What an expression may be: the answers of :mod:`vllm_mods.fit.infer`."""

from __future__ import annotations

import ast
from typing import NamedTuple

from vllm_mods.fit.found import Symbol
from vllm_mods.fit.shapes import Function
from vllm_mods.fit.signatures import dotted

_NOTHING = Symbol()


class Thing(NamedTuple):
    """One possibility of what an expression is.

    ``kind`` is ``module``, ``class``, ``instance``, ``function``, ``super`` or ``unknown``.
    ``exact`` means that no subclass can stand there; ``bound`` that the receiver is passed;
    ``owner`` is the class a method was found in, ``on`` the class it was looked up on.
    """

    kind: str
    found: Symbol = _NOTHING
    exact: bool = False
    bound: bool = False
    owner: Symbol | None = None
    on: Symbol | None = None
    functions: tuple[Function, ...] = ()
    why: str = ""


def unknown(why: str) -> tuple[Thing, ...]:
    """Return the answer that nothing is known, and why."""
    return (Thing(kind="unknown", why=why),)


def outside(name: str) -> Thing:
    """Return something that vLLM does not define: its calls are not for fit to judge."""
    return Thing(kind="unknown", found=Symbol(external=name), why=f"{name} is outside the tree")


_BUILTINS = {
    f"builtins.{kind.__name__}()": kind
    for kind in (int, float, bool, str, bytes, list, tuple, dict, set)
}


def builtin(thing: Thing) -> type | None:
    """Return the builtin type that something is an instance of, ``None`` for anything else."""
    return _BUILTINS.get(thing.found.external or "")


def call_text(node: ast.Call) -> str:
    """Return what is called as the code writes it."""
    return dotted(node.func) or ast.unparse(node.func)[:60]
